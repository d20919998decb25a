// SPDX-License-Identifier: Apache-2.0

package cms

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
)

// read is a signedData with what others than this package write into it.
type read struct {
	Version      int
	Digests      []pkix.AlgorithmIdentifier `asn1:"set"`
	Content      contentInfo
	Certificates asn1.RawValue `asn1:"optional,tag:0"`
	Lists        asn1.RawValue `asn1:"optional,tag:1"`
	Signers      []readSigner  `asn1:"set"`
}

type readSigner struct {
	Version    int
	Signer     issuerAndSerial
	Digest     pkix.AlgorithmIdentifier
	Attributes asn1.RawValue `asn1:"optional,tag:0"`
	Encryption pkix.AlgorithmIdentifier
	Signature  []byte
	Unsigned   asn1.RawValue `asn1:"optional,tag:1"`
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
func parse(signature []byte) (s read, brought []*x509.Certificate, err error) {
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
func (s *readSigner) check(of asn1.ObjectIdentifier, content []byte, brought, trusted []*x509.Certificate) error {
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
