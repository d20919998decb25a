// SPDX-License-Identifier: Apache-2.0

package cms

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Open returns the DER value of a type that a signature has in it, see [Enclosed], where one of the
// trusted certificates signed it, or leads to who did by certificates in it. An error names who did. Zeros may
// follow the signature.
func Open(signature []byte, of asn1.ObjectIdentifier, trusted []*x509.Certificate) ([]byte, error) {
	s, brought, err := parse(signature)
	if err != nil {
		return nil, err
	}
	var inner asn1.RawValue
	if _, err := asn1.Unmarshal(s.Content.Content.Bytes, &inner); err != nil || !s.Content.Type.Equal(of) {
		return nil, errors.New("signature: of something else")
	}
	err = errors.New("signature: by nobody")
	for _, by := range s.Signers {
		if err = by.check(of, inner.Bytes, brought, trusted); err == nil {
			return inner.FullBytes, nil
		}
	}
	return nil, err
}

// parse reads a signature, and the certificates in it.
func parse(signature []byte) (s signedData, brought []*x509.Certificate, err error) {
	var outer contentInfo
	rest, err := asn1.Unmarshal(signature, &outer)
	if err != nil || len(bytes.Trim(rest, "\x00")) > 0 || !outer.Type.Equal(oidSignedData) {
		return s, nil, errors.New("not a signature in the form PKCS #7")
	}
	if _, err = asn1.Unmarshal(outer.Content.Bytes, &s); err == nil {
		brought, err = x509.ParseCertificates(s.Certificates.Bytes)
	}
	if err != nil {
		return s, nil, fmt.Errorf("signature: %w", err)
	}
	return s, brought, nil
}

// check holds one signer to the content, and to those who are trusted.
func (s *signerInfo) check(of asn1.ObjectIdentifier, content []byte, brought, trusted []*x509.Certificate) error {
	all := slices.Concat(brought, trusted)
	i := slices.IndexFunc(all, func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawIssuer, s.Signer.Issuer.FullBytes) && s.Signer.Serial != nil && c.SerialNumber.Cmp(s.Signer.Serial) == 0
	})
	if i < 0 {
		return errors.New("signature: without the certificate of who signed")
	}
	who := all[i]
	if !knows(trusted, brought, who) {
		return fmt.Errorf("signed by %q, whom nobody trusts here", who.Subject.CommonName)
	}
	if !s.Digest.Algorithm.Equal(oidSHA256) || len(s.Attributes.FullBytes) == 0 {
		return errors.New("signature: without attributes, or not of a SHA-256 digest")
	}
	signed := append([]byte{0x31}, s.Attributes.FullBytes[1:]...) // [0] IMPLICIT becomes SET OF
	if err := who.CheckSignature(x509.SHA256WithRSA, signed, s.Signature); err != nil {
		return fmt.Errorf("signature: not by the key of %q", who.Subject.CommonName)
	}
	var attributes []attribute
	if _, err := asn1.UnmarshalWithParams(signed, &attributes, "set"); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	sum := sha256.Sum256(content)
	if !says(attributes, oidMessageDigest, sum[:]) || !says(attributes, oidContentType, of) {
		return errors.New("signature: of other content")
	}
	return nil
}

// knows reports whether a certificate is trusted, or signed by one that is, or by one of those brought
// of which the same holds.
func knows(trusted, brought []*x509.Certificate, who *x509.Certificate) bool {
	for above := []*x509.Certificate{who}; len(above) > 0; above = above[1:] {
		for _, t := range trusted {
			if t.Equal(above[0]) || above[0].CheckSignatureFrom(t) == nil {
				return true
			}
		}
		brought = slices.DeleteFunc(slices.Clone(brought), func(b *x509.Certificate) bool { // so that a circle ends
			signed := bytes.Equal(b.RawSubject, above[0].RawIssuer) && above[0].CheckSignatureFrom(b) == nil
			if signed {
				above = append(above, b)
			}
			return signed
		})
	}
	return false
}

// says reports whether the attributes have one of a type, with one value.
func says(attributes []attribute, of asn1.ObjectIdentifier, value any) bool {
	want, err := asn1.Marshal(value)
	found := 0
	for _, a := range attributes {
		if a.Type.Equal(of) {
			found++
			if err != nil || len(a.Values) != 1 || !bytes.Equal(a.Values[0].FullBytes, want) {
				return false
			}
		}
	}
	return found == 1
}

// TrustsImage says what firmware starts: what one of these certificates signed and nobody forbade.
type TrustsImage struct {
	Allowed, ForbiddenBy []*x509.Certificate
	Digests, Forbidden   [][]byte // see [ImageDigest]
	Revoked              [][]byte // digests of the signed part of certificates, which are as ForbiddenBy, whenever they signed
}

// Verify returns an error where a program is not one that is started: signed by nobody, by somebody
// else, or forbidden. A program with several signatures needs one, and none by whom is forbidden.
func (t TrustsImage) Verify(program []byte) error {
	bare, sum, err := imageDigest(program)
	if err != nil {
		return err
	}
	if lists(t.Forbidden, sum) {
		return errors.New("the firmware forbids it (dbx)")
	}
	entry := program[binary.LittleEndian.Uint32(bare[headerAt:])+signaturesAt:]
	at, size := binary.LittleEndian.Uint32(entry), binary.LittleEndian.Uint32(entry[4:])
	if err = errors.New("nobody signed it"); lists(t.Digests, sum) {
		err = nil
	}
	if size == 0 {
		return err
	}
	if err != nil {
		err = errors.New("its signatures are damaged")
	}
	for table := program[at:]; len(table) >= 8; { // digest has looked that they are at its end
		length := binary.LittleEndian.Uint32(table)
		if length < 8 || uint64(length) > uint64(len(table)) {
			break
		}
		_, brought, _ := parse(table[8:length]) // what cannot be read was signed by nobody
		if _, by := Open(table[8:length], oidIndirect, t.forbiddenBy(brought)); by == nil {
			return errors.New("the firmware forbids what its signer signs (dbx)")
		}
		if err != nil {
			err = t.signed(table[8:length], sum)
		}
		table = table[min(len(table), (int(length)+7)&^7):]
	}
	return err
}

func lists(digests [][]byte, sum []byte) bool {
	return slices.ContainsFunc(digests, func(d []byte) bool { return bytes.Equal(d, sum) })
}

// forbiddenBy returns the certificates whose programs are not started, with those that only a digest names.
func (t TrustsImage) forbiddenBy(brought []*x509.Certificate) []*x509.Certificate {
	return append(slices.DeleteFunc(slices.Concat(brought, t.Allowed), func(c *x509.Certificate) bool {
		short, middle, long := sha256.Sum256(c.RawTBSCertificate), sha512.Sum384(c.RawTBSCertificate), sha512.Sum512(c.RawTBSCertificate)
		return !lists(t.Revoked, short[:]) && !lists(t.Revoked, middle[:]) && !lists(t.Revoked, long[:])
	}), t.ForbiddenBy...)
}

// signed holds one signature to a program's digest.
func (t TrustsImage) signed(signature, sum []byte) error {
	content, err := Open(signature, oidIndirect, t.Allowed)
	if err != nil {
		return err
	}
	var of struct {
		Data   asn1.RawValue
		Digest digestInfo
	}
	if _, err := asn1.Unmarshal(content, &of); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	if !bytes.Equal(of.Digest.Digest, sum) {
		return errors.New("it is not what was signed")
	}
	return nil
}
