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
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
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
	return write(key, certificate, data, nil, contentInfo{Type: oidData}, asn1.RawValue{})
}

// Accompanied signs data that stays apart from the signature, which has the certificate in it and no
// attributes: as firmware takes updates of its variables.
func Accompanied(key crypto.Signer, certificate *x509.Certificate, data []byte) ([]byte, error) {
	return write(key, certificate, data, nil, contentInfo{Type: oidData}, tagged(certificate.Raw))
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
	return write(key, certificate, attributes, attributes, contentInfo{of, tagged(value)}, tagged(certificate.Raw))
}

// tagged is a constructed value [0] of some octets.
func tagged(content []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: content}
}

// write signs what is to be signed and puts the signature together. attributes is a SET, or nil.
func write(key crypto.Signer, certificate *x509.Certificate, toSign, attributes []byte, content contentInfo,
	certificates asn1.RawValue) ([]byte, error) {
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
	data, err := asn1.Marshal(signedData{Version: 1, Digests: []pkix.AlgorithmIdentifier{digest}, Content: content,
		Certificates: certificates, Signers: []signerInfo{signer}})
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(contentInfo{oidSignedData, tagged(data)})
}
