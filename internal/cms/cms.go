// SPDX-License-Identifier: Apache-2.0

// Package cms writes signatures, and opens those with content, in the form SignedData of RFC 2315 (PKCS #7), as the kernel reads
// them of modules and firmware of programs and variables: RSA with SHA-256 and PKCS #1 v1.5, without a time, so
// that the same content and key give the same bytes.
//
// Such a program carries its signature itself, see [SignImage].
package cms

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

var (
	oidData          = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidSignedData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidRSA           = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidSHA256        = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidContentType   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
)

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"optional"` // with its tag [0]
}

type signedData struct {
	Version      int
	Digests      []pkix.AlgorithmIdentifier `asn1:"set"`
	Content      contentInfo
	Certificates asn1.RawValue `asn1:"optional,tag:0"` // with its tag
	Lists        asn1.RawValue `asn1:"optional,tag:1"` // this package writes none
	Signers      []signerInfo  `asn1:"set"`
}

type signerInfo struct {
	Version    int
	Signer     issuerAndSerial
	Digest     pkix.AlgorithmIdentifier
	Attributes asn1.RawValue `asn1:"optional,tag:0"` // with its tag
	Encryption pkix.AlgorithmIdentifier
	Signature  []byte
	Unsigned   asn1.RawValue `asn1:"optional,tag:1"` // this package writes none
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

type digestInfo struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []asn1.RawValue `asn1:"set"`
}

// Detached signs data that stays apart from the signature, without attributes and certificate:
// what scripts/sign-file of the kernel writes.
func Detached(key crypto.Signer, certificate *x509.Certificate, data []byte) ([]byte, error) {
	return write(key, certificate, data, nil, signedData{Content: contentInfo{Type: oidData}})
}

// Accompanied signs data that stays apart from the signature, which has the certificate in it and no
// attributes: as firmware takes updates of its variables.
func Accompanied(key crypto.Signer, certificate *x509.Certificate, data []byte) ([]byte, error) {
	return write(key, certificate, data, nil, signedData{Content: contentInfo{Type: oidData}, Certificates: tagged(certificate.Raw)})
}

// Enclosed signs a DER value of a type that the signature has in it, beside the certificate.
func Enclosed(key crypto.Signer, certificate *x509.Certificate, of asn1.ObjectIdentifier, value []byte) ([]byte, error) {
	var inner asn1.RawValue // what is signed are its octets without tag and length, RFC 2315 9.3
	if _, err := asn1.Unmarshal(value, &inner); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	kind, err := asn1.Marshal(of)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(inner.Bytes)
	digest, err := asn1.Marshal(sum[:])
	if err != nil {
		return nil, err
	}
	attributes, err := asn1.MarshalWithParams([]attribute{{oidContentType, []asn1.RawValue{{FullBytes: kind}}},
		{oidMessageDigest, []asn1.RawValue{{FullBytes: digest}}}}, "set")
	if err != nil {
		return nil, err
	}
	return write(key, certificate, attributes, attributes,
		signedData{Content: contentInfo{of, tagged(value)}, Certificates: tagged(certificate.Raw)})
}

// tagged is a constructed value [0] of some octets.
func tagged(content []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: content}
}

// write signs what is to be signed and completes the signature. attributes is a SET, or nil.
func write(key crypto.Signer, certificate *x509.Certificate, toSign, attributes []byte, s signedData) ([]byte, error) {
	public, ok := certificate.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, errors.New("sign: the certificate is not of an RSA key")
	}
	sum := sha256.Sum256(toSign)
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature); err != nil { // a program may hold another key
		return nil, errors.New("sign: the signature is not by the key of the certificate")
	}
	null := asn1.RawValue{Tag: asn1.TagNull}
	digest := pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: null}
	signer := signerInfo{Version: 1, Signer: issuerAndSerial{asn1.RawValue{FullBytes: certificate.RawIssuer}, certificate.SerialNumber},
		Digest: digest, Encryption: pkix.AlgorithmIdentifier{Algorithm: oidRSA, Parameters: null}, Signature: signature}
	if attributes != nil {
		signer.Attributes = asn1.RawValue{FullBytes: append([]byte{0xa0}, bytes.Clone(attributes[1:])...)} // SET OF becomes [0] IMPLICIT
	}
	s.Version, s.Digests, s.Signers = 1, []pkix.AlgorithmIdentifier{digest}, []signerInfo{signer}
	data, err := asn1.Marshal(s)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(contentInfo{oidSignedData, tagged(data)})
}

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
