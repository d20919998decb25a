// SPDX-License-Identifier: Apache-2.0

package cms

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

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
		Digest struct {
			Algorithm pkix.AlgorithmIdentifier
			Digest    []byte
		}
	}
	if _, err := asn1.Unmarshal(content, &of); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	if !bytes.Equal(of.Digest.Digest, sum) {
		return errors.New("it is not what was signed")
	}
	return nil
}
