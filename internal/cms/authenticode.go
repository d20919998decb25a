// SPDX-License-Identifier: Apache-2.0

// Programs for UEFI firmware are signed, and verified as firmware does it: "Windows Authenticode Portable Executable
// Signature Format", Microsoft, as firmware and kexec_file_load(2) check it.

package cms

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"debug/pe"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Offsets of a PE file: of the header's own offset; within the header, of a 64-bit program, of its
// checksum and of the entry that says where its signatures are.
const (
	headerAt     = 0x3c
	checksumAt   = 24 + 64
	signaturesAt = 24 + 144
)

// oidIndirect is the type SpcIndirectDataContent of what is signed.
var oidIndirect = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 4}

// SignImage returns a program with one signature, in place of those that it has: of what is to be
// started by kexec the kernel takes one alone. The same program, key and certificate make the
// same bytes.
func SignImage(program []byte, key crypto.Signer, certificate *x509.Certificate) ([]byte, error) {
	bare, sum, err := imageDigest(program)
	if err != nil {
		return nil, fmt.Errorf("sign a program for firmware: %w", err)
	}
	content, err := indirect(sum)
	if err != nil {
		return nil, err
	}
	signature, err := Enclosed(key, certificate, oidIndirect, content)
	if err != nil {
		return nil, err
	}
	// WIN_CERTIFICATE: its length, revision 2.0, PKCS #7.
	le := binary.LittleEndian
	table := le.AppendUint16(le.AppendUint16(le.AppendUint32(nil, uint32(8+len(signature))), 0x0200), 2)
	table = padImage(append(table, signature...))
	entry := bare[le.Uint32(bare[headerAt:])+signaturesAt:]
	le.PutUint32(entry, uint32(len(bare)))
	le.PutUint32(entry[4:], uint32(len(table)))
	return append(bare, table...), nil
}

// ImageDigest returns what firmware calls the program: the SHA-256 of what a signature is about, with or
// without signatures the same. Of a program that has more behind its signatures, as a kernel has in memory,
// firmware leaves out as many bytes as these have, but the last ones.
func ImageDigest(program []byte) ([]byte, error) {
	f, o, err := openImage(program)
	if err != nil {
		return nil, err
	}
	signatures := o.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY].Size
	if uint64(signatures) > uint64(len(program)) {
		return nil, errors.New("its signatures are not whole")
	}
	return hashImage(f, o, padImage(bytes.Clone(program[:len(program)-int(signatures)])))
}

// padImage fills up to a multiple of 8 bytes with zeros.
func padImage(data []byte) []byte { return append(data, make([]byte, (8-len(data)%8)%8)...) }

// imageDigest returns a program without its signatures, which lie at the end, and what is signed of it.
func imageDigest(program []byte) (bare, sum []byte, err error) {
	f, o, err := openImage(program)
	if err != nil {
		return nil, nil, err
	}
	bare = bytes.Clone(program)
	if dir := o.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY]; dir.Size > 0 {
		if uint64(dir.VirtualAddress)+uint64(dir.Size) != uint64(len(bare)) || int64(dir.VirtualAddress) < int64(o.SizeOfHeaders) {
			return nil, nil, errors.New("its signatures are not at its end")
		}
		bare = bare[:dir.VirtualAddress]
	}
	bare = padImage(bare)
	sum, err = hashImage(f, o, bare)
	if err != nil {
		return nil, nil, err
	}
	header := binary.LittleEndian.Uint32(bare[headerAt:])
	clear(bare[header+checksumAt:][:4]) // firmware looks at it for drivers only
	clear(bare[header+signaturesAt:][:8])
	return bare, sum, nil
}

// openImage reads the headers of a program.
func openImage(program []byte) (*pe.File, *pe.OptionalHeader64, error) {
	f, err := pe.NewFile(bytes.NewReader(program))
	if err != nil {
		return nil, nil, err
	}
	o, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok || o.NumberOfRvaAndSizes <= pe.IMAGE_DIRECTORY_ENTRY_SECURITY {
		return nil, nil, errors.New("not a 64-bit program that has room for signatures")
	}
	return f, o, nil
}

// hashImage hashes a program without its signatures: headers and sections in the order of the file,
// one after another, then what is behind them.
func hashImage(f *pe.File, o *pe.OptionalHeader64, bare []byte) ([]byte, error) {
	if len(bare) < headerAt+4 {
		return nil, errors.New("its header is damaged")
	}
	header := int(binary.LittleEndian.Uint32(bare[headerAt:]))
	if int64(o.SizeOfHeaders) > int64(len(bare)) || int(o.SizeOfHeaders) < header+signaturesAt+8 {
		return nil, errors.New("its header is damaged")
	}
	h := sha256.New()
	h.Write(bare[:header+checksumAt])
	h.Write(bare[header+checksumAt+4 : header+signaturesAt])
	h.Write(bare[header+signaturesAt+8 : o.SizeOfHeaders])
	hashed := int64(o.SizeOfHeaders)
	slices.SortFunc(f.Sections, func(a, b *pe.Section) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, s := range f.Sections {
		if s.Size == 0 {
			continue
		}
		if int64(s.Offset) != hashed || hashed+int64(s.Size) > int64(len(bare)) {
			return nil, fmt.Errorf("section %s does not begin where the one before ends: those who check leave out different bytes", s.Name)
		}
		hashed += int64(s.Size)
		h.Write(bare[s.Offset:hashed])
	}
	h.Write(bare[hashed:])
	return h.Sum(nil), nil
}

// indirect is the SpcIndirectDataContent of a digest.
func indirect(sum []byte) ([]byte, error) {
	type image struct { // SpcPeImageData: no flags, and a file that is named "<<<Obsolete>>>"
		Flags asn1.BitString
		File  asn1.RawValue
	}
	var name []byte
	for _, c := range []byte("<<<Obsolete>>>") {
		name = append(name, 0, c) // BMPString
	}
	for _, tag := range []byte{0x80, 0xa2, 0xa0} { // unicode, within file, within its place
		name = append([]byte{tag, byte(len(name))}, name...)
	}
	type data struct {
		Type  asn1.ObjectIdentifier
		Value image
	}
	return asn1.Marshal(struct {
		Data   data
		Digest digestInfo
	}{
		data{asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 15}, image{File: asn1.RawValue{FullBytes: name}}},
		digestInfo{pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: asn1.NullRawValue}, sum},
	})
}
