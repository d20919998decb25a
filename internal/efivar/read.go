// SPDX-License-Identifier: Apache-2.0

package efivar

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
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
	return walk(data, func(kind [16]byte, entry []byte) error {
		if kind != ofCertificates {
			return nil
		}
		if _, err := x509.ParseCertificate(entry); err != nil {
			return fmt.Errorf("signature list: %w", err)
		}
		return nil
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
