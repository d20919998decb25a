// SPDX-License-Identifier: Apache-2.0

package efivar

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/require"
)

// TestUpdate: openssl(1) takes the signature of what the specification says is signed: name,
// namespace, attributes, time and content. That firmware does is shown by test/vm.
func TestUpdate(t *testing.T) {
	require.Tool(t, "openssl")
	key, certificate := certified.Key(t, "kek")
	at, lists := time.Date(2026, 11, 28, 11, 12, 13, 999, time.UTC), Digests([][]byte{bytes.Repeat([]byte{1}, 32)})
	update, err := Forbidden.Append(key, certificate, at, lists)
	if err != nil {
		t.Fatal(err)
	}
	when := update[:16]
	if want := []byte{0xea, 0x07, 11, 28, 11, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0}; !bytes.Equal(when, want) {
		t.Errorf("time %x, not %x", when, want)
	}
	size := binary.LittleEndian.Uint32(update[16:])
	if !bytes.Equal(update[16+size:], lists) {
		t.Error("the content does not follow the signature")
	}
	if sha256 := []byte{0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01}; !bytes.Equal(update[40+13:40+13+9], sha256) {
		t.Errorf("older firmware looks for the digest's name at byte 13, which has %x", update[40+13:40+13+9])
	}
	signed := append([]byte("d\x00b\x00x\x00\xcb\xb2\x19\xd7\x3a\x3d\x96\x45\xa3\xbc\xda\xd0\x0e\x67\x65\x6f\x67\x00\x00\x00"), when...)
	signed = append(signed, lists...)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	wrapped, err := asn1.Marshal(struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: update[40 : 16+size]}})
	if err != nil {
		t.Fatal(err)
	}
	ca := write("ca", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	verify := func(content []byte) error {
		out, err := exec.Command("openssl", "smime", "-verify", "-inform", "DER", "-binary", "-in", write("signature", wrapped), "-content", write("content", content),
			"-CAfile", ca, "-purpose", "any", "-out", "/dev/null").CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}
	if err := verify(signed); err != nil {
		t.Error(err)
	}
	signed[len(signed)-1] ^= 1
	if verify(signed) == nil {
		t.Error("the signature is of any content")
	}
}

// TestNamespaces: the two variables that name keys of keys have another namespace than the two
// about programs, and what is replaced is not what is added.
func TestNamespaces(t *testing.T) {
	if Platform.vendor() != Exchange.vendor() || Allowed.vendor() != Forbidden.vendor() || Exchange.vendor() == Allowed.vendor() {
		t.Error("PK and KEK have one namespace, db and dbx another")
	}
	key, certificate := certified.Key(t, "kek")
	replace, err := Allowed.Replace(key, certificate, time.Unix(0, 0), Certificate(certificate))
	if err != nil {
		t.Fatal(err)
	}
	add, err := Allowed.Append(key, certificate, time.Unix(0, 0), Certificate(certificate))
	if err != nil || bytes.Equal(replace, add) {
		t.Errorf("both say the same, %v", err)
	}
	if _, other := certified.Key(t, "kek"); other != nil {
		if _, err := Allowed.Append(key, other, time.Unix(0, 0), nil); err == nil {
			t.Error("signed by another key than that of the certificate")
		}
	}
}
