// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"debug/pe"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/media/format"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/require"
)

// program is the source of a key that a program of openssl(1) holds, and signs more of what it is asked with it.
func program(t *testing.T, key *rsa.PrivateKey, more string) string {
	t.Helper()
	require.Tool(t, "openssl")
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nset -e\ncd " + dir + "\ncase $1 in\npublic) openssl pkey -in key -pubout ;;\n" +
		"sign) tr a-f A-F | basenc -d --base16 -i >digest; openssl pkeyutl -sign -inkey key -pkeyopt digest:sha256 -in digest" + more + " | base64 -w0 ;;\nesac\n"
	for at, text := range map[string][]byte{"key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), "holder": []byte(script)} {
		if err := os.WriteFile(filepath.Join(dir, at), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return keys.Command(filepath.Join(dir, "holder"))
}

// TestALoaderBringsItsPolicy: it names the boot key, and has that key's signature of what the stub leaves in
// its register, and that of the key before, which a program holds; another number is another policy. Made again,
// it has the same bytes. A signature that does not verify ends it.
func TestALoaderBringsItsPolicy(t *testing.T) {
	const file = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	stub, err := os.ReadFile(file)
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	key, former := certified.NewBoot(t), certified.NewBoot(t)
	held, err := keys.BootSigner(program(t, former.PrivateKey, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &Loader{sign: builder.Programs(key), approve: []crypto.Signer{key.PrivateKey, held}, stub: stub, name: "test",
		parts: []format.UKISection{{Name: ".cmdline", Data: []byte("quiet")}, {Name: format.Kernel, Data: stub}}}
	policies := map[string]bool{}
	for number := range int64(2) {
		if err := l.SetNumber(number); err != nil {
			t.Fatal(err)
		}
		first := l.Image
		if err := l.SetNumber(number); err != nil || !bytes.Equal(first, l.Image) {
			t.Errorf("made again it is another one: %v", err)
		}
		f, err := pe.NewFile(bytes.NewReader(l.Image))
		if err != nil {
			t.Fatal(err)
		}
		section := func(name string) []byte {
			t.Helper()
			s := f.Section(name)
			if s == nil {
				t.Fatalf("there is no section %s", name)
			}
			data, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			return data[:s.VirtualSize]
		}
		block, rest := pem.Decode(section(spec.ApprovalKeySection))
		if block == nil || len(rest) > 0 || !bytes.Equal(block.Bytes, key.Certificate().RawSubjectPublicKeyInfo) {
			t.Fatal("the loader does not name the boot key")
		}
		var a spec.Approvals
		if err := json.Unmarshal(section(spec.ApprovalsSection), &a); err != nil || len(a.SHA256) != 2 {
			t.Fatalf("%+v, %v", a, err)
		}
		_, register, err := format.MeasureUKI(l.Image)
		if err != nil {
			t.Fatal(err)
		}
		policy := spec.RegisterPolicy(format.Register, register)
		sum := sha256.Sum256(policy[:])
		for i, by := range []*certified.Boot{key, former} {
			is, id := a.SHA256[i], sha256.Sum256(by.Certificate().RawSubjectPublicKeyInfo)
			if is.Policy != hex.EncodeToString(policy[:]) || is.Key != hex.EncodeToString(id[:]) ||
				len(is.Registers) != 1 || is.Registers[0] != format.Register {
				t.Errorf("%+v", is)
			}
			if err := rsa.VerifyPKCS1v15(&by.PublicKey, crypto.SHA256, sum[:], is.Signature); err != nil {
				t.Error(err)
			}
			policies[is.Policy] = true
		}
	}
	if len(policies) != 2 {
		t.Error("two loaders have one policy")
	}
	liar, err := keys.BootSigner(program(t, former.PrivateKey, ` | LC_ALL=C tr '\000-\377' '\001-\377\000'`), nil)
	if err != nil {
		t.Fatal(err)
	}
	lied := &Loader{sign: l.sign, approve: []crypto.Signer{key.PrivateKey, liar}, stub: stub, name: "test", parts: l.parts}
	if err := lied.SetNumber(1); err == nil || !strings.Contains(err.Error(), "does not verify with its public key") {
		t.Errorf("a program that signs something else: %v", err)
	}
	later := bytes.Replace(stub, []byte("systemd-stub 25"), []byte("systemd-stub 99"), 1)
	for name, bare := range map[string]*Loader{
		"that nobody signs":  {sign: builder.Programs(nil), stub: stub, name: "test", parts: l.parts},
		"of an unknown stub": {sign: builder.Programs(key), approve: l.approve, stub: later, name: "test", parts: l.parts},
	} {
		if err := bare.SetNumber(1); err != nil {
			t.Fatal(err)
		}
		f, err := pe.NewFile(bytes.NewReader(bare.Image))
		if err != nil || f.Section(spec.ApprovalsSection) != nil || f.Section(spec.ApprovalKeySection) != nil {
			t.Errorf("a loader %s brings a policy: %v", name, err)
		}
	}
}
