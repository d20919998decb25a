// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"math/big"
	"testing"
)

// TestSign: a module ends as the kernel looks for it from its end, kernel/module/signing.c.
func TestSign(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	is := x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "boot"}}
	der, err := x509.CreateCertificate(rand.Reader, &is, &is, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	module := []byte("\x7fELF module")
	signed, err := SignModule(module, key, certificate)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutSuffix(signed, []byte("~Module signature appended~\n"))
	if !ok || len(rest) < 12 {
		t.Fatalf("it ends in %q", signed)
	}
	info, rest := rest[len(rest)-12:], rest[:len(rest)-12]
	if !bytes.Equal(info[:8], []byte{0, 0, 2, 0, 0, 0, 0, 0}) { // PKEY_ID_PKCS7; all else zero
		t.Errorf("struct module_signature is %x", info)
	}
	size := int(binary.BigEndian.Uint32(info[8:]))
	if size > len(rest) || !bytes.Equal(rest[:len(rest)-size], module) {
		t.Fatalf("a signature of %d bytes", size)
	}
	var seq asn1.RawValue
	if left, err := asn1.Unmarshal(rest[len(rest)-size:], &seq); err != nil || len(left) > 0 {
		t.Errorf("the signature is no whole DER value: %v", err)
	}
}
