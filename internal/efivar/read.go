// SPDX-License-Identifier: Apache-2.0

package efivar

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

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
	for le := binary.LittleEndian; len(data) > 0; {
		if len(data) < 28 {
			return errors.New("not a signature list of firmware")
		}
		size, header, entry := le.Uint32(data[16:]), le.Uint32(data[20:]), le.Uint32(data[24:])
		if size < 28 || uint64(size) > uint64(len(data)) || header > size-28 || entry <= 16 || (size-28-header)%entry != 0 || size == 28+header {
			return errors.New("not a signature list of firmware")
		}
		if kind := [16]byte(data[:16]); kind == ofCertificates {
			if _, err := x509.ParseCertificate(data[28+header+16 : size]); err != nil {
				return fmt.Errorf("signature list: %w", err)
			}
		}
		data = data[size:]
	}
	return nil
}
