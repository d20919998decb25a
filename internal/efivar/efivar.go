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
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/fault"
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
	_ = binary.Write(&signed, le, utf16.Encode([]rune(string(v)))) // a buffer takes everything
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

// attributes is how many bytes Linux' efivarfs puts before the content of a variable.
const attributes = 4

// Read returns the signature lists that a file stands for, and the common names of certificates.
// It takes certificates in PEM and in DER, signature lists, and copies of variables out of Linux'
// efivarfs; lists come back as they are, without names.
func Read(data []byte) (lists []byte, names []string, err error) {
	if check(data) == nil {
		return data, nil, nil
	}
	if len(data) > attributes && check(data[attributes:]) == nil {
		return data[attributes:], nil, nil
	}
	certificates, err := certificates(data)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range certificates {
		lists, names = append(lists, Certificate(c)...), append(names, c.Subject.CommonName)
	}
	return lists, names, nil
}

// certificates reads those in PEM, else one in DER.
func certificates(data []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a block %s", strings.ToLower(block.Type))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		c, err := x509.ParseCertificate(data)
		if err != nil {
			return nil, errors.New("neither a certificate nor a signature list")
		}
		all = append(all, c)
	}
	return all, nil
}

// check returns an error where data is not a sequence of signature lists, as a variable holds them.
func check(data []byte) error {
	if len(data) == 0 {
		return errors.New("it holds no signature list")
	}
	return walk(data, func(kind [16]byte, entry []byte) error {
		if kind != ofCertificates {
			return nil
		}
		_, err := x509.ParseCertificate(entry)
		return fault.In(err, "signature list")
	})
}

// Entries returns the certificates, the digests of programs, as SHA-256, and those of certificates' signed
// part, as SHA-256, SHA-384 or SHA-512, that the signature lists of a variable have. Entries of other
// kinds are left out, and certificates that cannot be read.
func Entries(lists []byte) (all []*x509.Certificate, digests, revoked [][]byte, err error) {
	err = walk(lists, func(kind [16]byte, entry []byte) error {
		switch kind {
		case ofCertificates:
			if c, err := x509.ParseCertificate(entry); err == nil { // vendors have some that are not as they should be
				all = append(all, c)
			}
		case ofDigests:
			digests = append(digests, entry)
		}
		if size := ofRevoked[kind]; size > len(entry) {
			return errors.New("not a signature list of firmware: a digest of a certificate is cut")
		} else if size > 0 {
			revoked = append(revoked, entry[:size]) // a time follows
		}
		return nil
	})
	return all, digests, revoked, err
}

// walk calls each for the entries of signature lists, without who put them there.
func walk(lists []byte, each func(kind [16]byte, entry []byte) error) error {
	for le := binary.LittleEndian; len(lists) > 0; {
		if len(lists) < 28 {
			return errors.New("not a signature list of firmware")
		}
		size, header, entry := le.Uint32(lists[16:]), le.Uint32(lists[20:]), le.Uint32(lists[24:])
		if size < 28 || uint64(size) > uint64(len(lists)) || header > size-28 || entry <= 16 || (size-28-header)%entry != 0 || size == 28+header {
			return errors.New("not a signature list of firmware")
		}
		for one := range slices.Chunk(lists[28+header:size], int(entry)) {
			if err := each([16]byte(lists), one[16:]); err != nil {
				return err
			}
		}
		lists = lists[size:]
	}
	return nil
}

// Dir is where Linux shows the variables, see efivarfs: a file each, whose first 4 bytes are attributes.
const Dir = "/sys/firmware/efi/efivars"

// SecureBoot is 1 where firmware verifies what it starts.
const SecureBoot Variable = "SecureBoot"

// File is the variable's name in Linux' efivarfs.
func (v Variable) File() string {
	if v == Allowed || v == Forbidden {
		return string(v) + "-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
	}
	return string(v) + "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
}

// inStore is how a store of authenticated variables begins, in the flash of firmware by EDK II.
var inStore = guid("aaf32c78-947b-439a-a180-2e144ec37792")

// Where a store has its size, and where its first variable begins.
const (
	sizeAt  = 16
	firstAt = 28
)

// Fill returns a flash image of OVMF or AAVMF with these variables in place of all that its store
// holds. Firmware that finds [Platform] there verifies what it starts.
func Fill(image []byte, variables map[Variable][]byte) ([]byte, error) {
	at := bytes.Index(image, inStore[:])
	if at < 0 || len(image)-at < firstAt {
		return nil, errors.New("no variables of firmware: it has no store of them")
	}
	image = bytes.Clone(image)
	size := binary.LittleEndian.Uint32(image[at+sizeAt:])
	if size < firstAt || uint64(size) > uint64(len(image)-at) {
		return nil, errors.New("no variables of firmware: their store is damaged")
	}
	room := image[at+firstAt : at+int(size)]
	copy(room, bytes.Repeat([]byte{0xff}, len(room))) // as erased flash is
	for _, v := range slices.Sorted(maps.Keys(variables)) {
		written := v.stored(variables[v])
		if len(written) > len(room) {
			return nil, errors.New("variables of firmware: the store has no room for them")
		}
		room = room[copy(room, written):]
	}
	return image, nil
}

// stored is an AUTHENTICATED_VARIABLE_HEADER with what follows it, up to where the next one begins.
func (v Variable) stored(data []byte) []byte {
	le, vendor := binary.LittleEndian, v.vendor()
	name, _ := binary.Append(nil, le, utf16.Encode([]rune(string(v)+"\x00"))) // numbers always have a size
	out := []byte{0xaa, 0x55, 0x3f, 0}                                        // begins, and is whole
	out = le.AppendUint32(out, replaces)                                      // attributes
	out = append(out, make([]byte, 8+16+4)...)                                // counter, time and key of the last update: there was none
	out = le.AppendUint32(out, uint32(len(name)))
	out = le.AppendUint32(out, uint32(len(data)))
	out = slices.Concat(out, vendor[:], name, data)
	return append(out, bytes.Repeat([]byte{0xff}, -len(out)&3)...)
}
