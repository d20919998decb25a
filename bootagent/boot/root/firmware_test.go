// SPDX-License-Identifier: Apache-2.0

package root

import (
	"crypto/sha256"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/ukitest"
)

// signedBy is a kernel by a new key of a name, and that key's certificate.
func signedBy(t *testing.T, name string) (kernel []byte, certificate *x509.Certificate) {
	t.Helper()
	key, certificate := certified.Key(t, name)
	kernel, err := cms.SignImage(ukitest.Stub(8), key, certificate)
	if err != nil {
		t.Fatal(err)
	}
	return kernel, certificate
}

// TestCheckKernel: behind firmware that verifies ours is entered, and neither somebody else's, which the
// running kernel may trust, nor one that nobody signed. Elsewhere each is.
func TestCheckKernel(t *testing.T) {
	ours, site := signedBy(t, "site")
	debians, _ := signedBy(t, "Debian Secure Boot Signer")
	sum, err := cms.ImageDigest(ours)
	if err != nil {
		t.Fatal(err)
	}
	db := efivar.Certificate(site)
	// EFI_CERT_X509_SHA256 with one entry: its owner, the digest, and that it is revoked since ever.
	tbs := sha256.Sum256(site.RawTBSCertificate)
	revoked := append([]byte("\x92\xa4\xd2\x3b\xc0\x96\x79\x40\xb4\x20\xfc\xf9\x8e\xf1\x03\xed\x5c\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00"),
		slices.Concat(make([]byte, 16), tbs[:], make([]byte, 16))...)
	for _, c := range []struct {
		what        string
		kernel      []byte
		on, db, dbx []byte
		want        string
	}{
		{"ours", ours, []byte{1}, db, nil, ""},
		{"somebody else's", debians, []byte{1}, db, nil, `signed by "Debian Secure Boot Signer", whom nobody trusts here`},
		{"nobody's", ukitest.Stub(8), []byte{1}, db, nil, "nobody signed it"},
		{"a text", []byte("kernel"), []byte{1}, db, nil, "EOF"},
		{"without db", ours, []byte{1}, nil, nil, `signed by "site", whom nobody trusts here`},
		{"revoked", ours, []byte{1}, db, efivar.Digests([][]byte{sum}), "(dbx)"},
		{"by whom is revoked", ours, []byte{1}, db, db, "(dbx)"},
		{"by whom is revoked by a digest", ours, []byte{1}, db, revoked, "(dbx)"},
		{"a db that is cut", ours, []byte{1}, db[:20], nil, "read the firmware's db: not a signature list"},
		{"nobody's, where nothing is verified", ukitest.Stub(8), []byte{0}, db, nil, ""},
		{"nobody's, by a BIOS", ukitest.Stub(8), nil, nil, nil, ""},
	} {
		dir := t.TempDir()
		for v, data := range map[efivar.Variable][]byte{efivar.SecureBoot: c.on, efivar.Allowed: c.db, efivar.Forbidden: c.dbx} {
			if data == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, v.File()), append([]byte{6, 0, 0, 0}, data...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kernel := filepath.Join(dir, "kernel")
		if err := os.WriteFile(kernel, c.kernel, 0o600); err != nil {
			t.Fatal(err)
		}
		err := CheckKernel(dir, kernel)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if err != nil && !strings.HasPrefix(c.want, "read") && refusal.Of(err) != refusal.Kernel {
			t.Errorf("%s: the code %q", c.what, refusal.Of(err))
		}
	}
	if err := CheckKernel(t.TempDir(), "none"); err != nil {
		t.Errorf("where nothing is verified the kernel is looked at: %v", err)
	}
}

// TestCheckKexec: a kernel of arm64 enters none where it is locked down.
func TestCheckKexec(t *testing.T) {
	for _, c := range []struct {
		arch    string
		on      []byte
		refuses bool
	}{{"arm64", []byte{1}, true}, {"arm64", []byte{0}, false}, {"arm64", nil, false}, {"amd64", []byte{1}, false}} {
		dir := t.TempDir()
		if c.on != nil {
			if err := os.WriteFile(filepath.Join(dir, efivar.SecureBoot.File()), append([]byte{6, 0, 0, 0}, c.on...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := CheckKexec(dir, c.arch); (refusal.Of(err) == refusal.Kernel) != c.refuses || (err != nil) != c.refuses {
			t.Errorf("%s, SecureBoot %v: %v", c.arch, c.on, err)
		}
	}
}
