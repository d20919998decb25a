// SPDX-License-Identifier: Apache-2.0

// Package efivar writes updates of the variables by which UEFI firmware knows whose programs it
// starts, signed as firmware takes them: chapters 8.2 (authenticated variables) and 32.4 (signature
// lists) of the UEFI specification.
//
// It changes no firmware but in the flash images of virtual machines.
package efivar

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/caisson-os/caisson/internal/cms"
)

// Variable is the name of one of the four variables.
type Variable string

const (
	Platform  Variable = "PK"  // whose key changes PK and KEK; the firmware verifies once it has one
	Exchange  Variable = "KEK" // whose keys change db and dbx
	Allowed   Variable = "db"  // whose programs are started
	Forbidden Variable = "dbx" // programs that are not, no matter who signed them
)

// Attributes of an update: kept over power-off, for firmware and for the running system, signed with
// a time; and whether it adds to the variable or takes its place.
const (
	replaces = 0x27
	Appends  = 0x67 // what Linux' efivarfs wants before an update that adds
)

// vendor returns the namespace of the variable.
func (v Variable) vendor() [16]byte {
	return guid(v.File()[len(v)+1:])
}

var (
	ofCertificates = guid("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
	ofDigests      = guid("c1c41626-504c-4092-aca9-41f936934328")
	ofRevoked      = map[[16]byte]int{ // sizes of digests of certificates
		guid("3bd2a492-96c0-4079-b420-fcf98ef103ed"): sha256.Size,
		guid("7076876e-80c2-4ee6-aad2-28b349a6865b"): sha512.Size384,
		guid("446dbf63-2502-4cda-bcfa-2465d2b0fe9d"): sha512.Size,
	}
	signedByPKCS7 = guid("4aafd29d-68df-49ee-8aa9-347d375665a7")
	owner         = guid("6ffda0b2-4d7a-4b57-9f0a-6b9b2c5ed6ad") // of what caisson puts into a list
)

// guid returns an identifier as firmware has it: its first three numbers begin with their low byte.
func guid(text string) (g [16]byte) {
	u, _ := hex.DecodeString(strings.ReplaceAll(text, "-", "")) // those of this package are whole
	le := binary.LittleEndian
	le.PutUint32(g[:], binary.BigEndian.Uint32(u))
	le.PutUint16(g[4:], binary.BigEndian.Uint16(u[4:]))
	le.PutUint16(g[6:], binary.BigEndian.Uint16(u[6:]))
	copy(g[8:], u[8:])
	return g
}

// Certificate returns a signature list with one certificate, of X.509 in DER.
func Certificate(c *x509.Certificate) []byte { return list(ofCertificates, [][]byte{c.Raw}) }

// Digests returns a signature list of programs' SHA-256 digests, as firmware makes them.
func Digests(sums [][]byte) []byte { return list(ofDigests, sums) }

// list writes an EFI_SIGNATURE_LIST without a header: its entries have one size.
func list(kind [16]byte, entries [][]byte) []byte {
	le, one := binary.LittleEndian, 16+len(entries[0])
	out := le.AppendUint32(kind[:], uint32(28+one*len(entries)))
	out = le.AppendUint32(le.AppendUint32(out, 0), uint32(one))
	for _, e := range entries {
		out = append(append(out, owner[:]...), e...)
	}
	return out
}

// Replace returns an update by which lists become the variable's content. Firmware takes one whose
// time, to the second, is after that of the update before.
func (v Variable) Replace(key crypto.Signer, c *x509.Certificate, at time.Time, lists []byte) ([]byte, error) {
	return v.update(key, c, at, replaces, lists)
}

// Append returns an update that adds lists to the variable's content. Its time is not compared.
func (v Variable) Append(key crypto.Signer, c *x509.Certificate, at time.Time, lists []byte) ([]byte, error) {
	return v.update(key, c, at, Appends, lists)
}

// update writes an EFI_VARIABLE_AUTHENTICATION_2 and what it is about.
func (v Variable) update(key crypto.Signer, c *x509.Certificate, at time.Time, attributes uint32, lists []byte) ([]byte, error) {
	le, at := binary.LittleEndian, at.UTC()
	// EFI_TIME, of which only the calendar and the clock may be set.
	when := append(le.AppendUint16(nil, uint16(at.Year())), byte(at.Month()), byte(at.Day()), byte(at.Hour()),
		byte(at.Minute()), byte(at.Second()))
	when = append(when, make([]byte, 16-len(when))...)

	var signed bytes.Buffer
	for _, c := range utf16.Encode([]rune(string(v))) {
		signed.Write(le.AppendUint16(nil, c))
	}
	vendor := v.vendor()
	signed.Write(vendor[:])
	signed.Write(le.AppendUint32(nil, attributes))
	signed.Write(when)
	signed.Write(lists)
	signature, err := cms.Accompanied(key, c, signed.Bytes())
	if err != nil {
		return nil, fmt.Errorf("update of %s: %w", v, err)
	}
	bare, err := unwrapped(signature)
	if err != nil {
		return nil, fmt.Errorf("update of %s: %w", v, err)
	}
	// WIN_CERTIFICATE_UEFI_GUID: its length, revision 2.0, the type 0x0ef1.
	out := le.AppendUint32(when, uint32(24+len(bare)))
	out = le.AppendUint16(le.AppendUint16(out, 0x0200), 0x0ef1)
	out = append(append(out, signedByPKCS7[:]...), bare...)
	return append(out, lists...), nil
}

// unwrapped returns the SignedData of a signature without the ContentInfo around it, which older
// firmware does not take.
func unwrapped(signature []byte) ([]byte, error) {
	var outer struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"tag:0"`
	}
	if _, err := asn1.Unmarshal(signature, &outer); err != nil {
		return nil, err
	}
	return outer.Content.Bytes, nil
}
