// SPDX-License-Identifier: Apache-2.0

// Package format writes what firmware reads from media: FAT file systems, ISO 9660 images with
// their boot records, and unified kernel images. It reads and changes none, and writes no partition
// table. Only media imports it.
package format

import (
	"bytes"
	"crypto/sha256"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
)

// UKISection is a part of a unified kernel image that the stub finds by its name.
type UKISection struct {
	Name string // ".osrel", ".cmdline", ".initrd", ".linux"; at most 8 bytes
	Data []byte
}

// Kernel is the name of the section with the kernel. It comes last: it takes more memory
// than it has bytes.
const Kernel = ".linux"

// Offsets in a PE file, see "PE Format", Microsoft.
const (
	peAt          = 0x3c // in the MS-DOS stub: where the PE header is
	coffSize      = 24   // signature and COFF header
	sectionSize   = 40
	sizeOfInit    = 8 // in the optional header: size of initialised data
	sizeOfImageAt = 56
	checkSumAt    = 64
	signaturesAt  = 144        // its entry for signatures
	symbolsAt     = 12         // in the COFF header: where symbols are, and how many
	readData      = 0x40000040 // initialised data that can be read
)

// WriteUKI writes the stub with sections behind its own: a program for UEFI firmware that holds a
// kernel, its initrd and its command line as sections of a PE file behind a small loader, systemd's
// stub. See https://uapi-group.org/specifications/specs/unified_kernel_image/ and systemd-stub(7).
//
// Nothing is signed. The same stub and sections make the same bytes: a PE file has one date, which
// stays the stub's. Of what the sections hold only the kernel is looked at: firmware has to keep as
// much memory for it as its own header asks for.
func WriteUKI(w io.Writer, stub []byte, sections []UKISection) error {
	f, err := pe.NewFile(bytes.NewReader(stub))
	if err != nil {
		return fmt.Errorf("read the stub: %w", err)
	}
	o, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return errors.New("the stub is not a 64-bit program")
	}
	l, err := ukiPlace(f, o, stub, sections)
	if err != nil {
		return err
	}
	parts := [][]byte{l.head, stub[len(l.head):l.stub], make([]byte, l.padStub)}
	for i, s := range sections {
		parts = append(parts, s.Data, make([]byte, l.pads[i]))
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// ukiLayout says where the parts of the image go.
type ukiLayout struct {
	head    []byte // the stub's headers with those of the sections
	stub    int    // bytes of the stub that go along
	padStub int    // zeros behind the stub
	pads    []int  // zeros behind each section
}

func ukiPlace(f *pe.File, o *pe.OptionalHeader64, stub []byte, sections []UKISection) (l ukiLayout, err error) {
	le := binary.LittleEndian
	if !alignment(o.FileAlignment, 64<<10) || !alignment(o.SectionAlignment, 2<<20) || int64(o.SizeOfHeaders) > int64(len(stub)) {
		return l, errors.New("the stub's header is damaged")
	}
	at := int(le.Uint32(stub[peAt:]))
	table := at + coffSize + int(f.SizeOfOptionalHeader)
	end := table + sectionSize*(len(f.Sections)+len(sections))
	if end > int(o.SizeOfHeaders) {
		return l, fmt.Errorf("the stub has room for %d sections, and %d are needed",
			(int(o.SizeOfHeaders)-table)/sectionSize, len(f.Sections)+len(sections))
	}
	l.head = bytes.Clone(stub[:o.SizeOfHeaders])
	optional := l.head[at+coffSize:]
	memory, last := uint64(o.SizeOfImage), uint64(o.SizeOfHeaders)
	for _, s := range f.Sections {
		for _, own := range sections {
			if s.Name == own.Name {
				return l, fmt.Errorf("the stub has a section %s already", s.Name)
			}
		}
		memory = max(memory, uint64(s.VirtualAddress)+uint64(s.VirtualSize))
		last = max(last, uint64(s.Offset)+uint64(s.Size))
	}
	// What is behind the last section, symbols and signatures, would be in no section of the image:
	// signers and firmware do not agree on what is signed of a program with such a gap.
	l.stub = int(min(last, uint64(len(stub))))
	clear(l.head[at+symbolsAt:][:8])
	if o.NumberOfRvaAndSizes > pe.IMAGE_DIRECTORY_ENTRY_SECURITY {
		clear(optional[signaturesAt:][:8])
	}
	file := ukiUp(uint64(l.stub), o.FileAlignment)
	l.padStub = int(file) - l.stub
	added := uint64(0)
	for i, s := range sections {
		if len(s.Name) > 8 || s.Name == Kernel && i != len(sections)-1 {
			return l, fmt.Errorf("section %q: its name has at most 8 bytes, and %s is the last one", s.Name, Kernel)
		}
		size := uint64(len(s.Data))
		if s.Name == Kernel {
			size = max(size, wants(s.Data))
		}
		raw := ukiUp(uint64(len(s.Data)), o.FileAlignment)
		memory = ukiUp(memory, o.SectionAlignment)
		if memory+size > 1<<32-1 || file+raw > 1<<32-1 {
			return l, fmt.Errorf("section %s: a program for firmware ends at 4 GiB", s.Name)
		}
		h := l.head[table+sectionSize*(len(f.Sections)+i):][:sectionSize]
		clear(h) // a stub may have anything behind its table
		copy(h[:8], s.Name)
		le.PutUint32(h[8:], uint32(size))
		le.PutUint32(h[12:], uint32(memory))
		le.PutUint32(h[16:], uint32(raw))
		le.PutUint32(h[20:], uint32(file))
		le.PutUint32(h[36:], readData)
		l.pads = append(l.pads, int(raw)-len(s.Data))
		memory, file, added = memory+size, file+raw, added+raw
	}
	le.PutUint16(l.head[at+6:], uint16(len(f.Sections)+len(sections)))
	le.PutUint32(optional[sizeOfInit:], uint32(uint64(o.SizeOfInitializedData)+added))
	le.PutUint32(optional[sizeOfImageAt:], uint32(ukiUp(memory, o.SectionAlignment)))
	le.PutUint32(optional[checkSumAt:], 0) // firmware looks at it for drivers only
	return l, nil
}

// wants is the memory that a kernel asks for in its own header, where it unpacks itself; 0
// for one that is not a program for firmware.
func wants(kernel []byte) uint64 {
	f, err := pe.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return 0 // the stub starts it another way, or says what is wrong with it
	}
	if o, ok := f.OptionalHeader.(*pe.OptionalHeader64); ok {
		return uint64(o.SizeOfImage)
	}
	return 0
}

// alignment reports whether parts may be aligned to n: a power of two, at most limit. What
// is written would grow by as much for each part.
func alignment(n, limit uint32) bool { return n != 0 && n&(n-1) == 0 && n <= limit }

func ukiUp(n uint64, to uint32) uint64 { return (n + uint64(to) - 1) / uint64(to) * uint64(to) }

// Register is the register of a TPM into which the stub extends the sections of its image.
const Register = 11

// UKIMeasured is a section whose digests a stub extends into [Register]: the digests of its name, which
// ends with a zero, and of its bytes.
type UKIMeasured struct {
	Section    string
	Name, Data [sha256.Size]byte
}

// measured lists the sections that a stub extends, in its order, and since which release. A section
// that is not in the image is passed over, and the signature of the register, .pcrsig, always.
var measured = []struct {
	name  string
	since int
}{
	{".linux", 252}, {".osrel", 252}, {".cmdline", 252}, {".initrd", 252}, {".ucode", 257}, {".splash", 252}, {".dtb", 252},
	{".uname", 254}, {".sbat", 254}, {".pcrpkey", 252}, {".profile", 257}, {".dtbauto", 257}, {".hwids", 257},
}

// newest is the newest release of the stub of which the rules are known.
const newest = 257

// stubVersion is how a stub tells its release, in the section .sdmagic.
var stubVersion = regexp.MustCompile(`^#### LoaderInfo: systemd-stub (\d+)[^0-9]`)

// MeasureUKI returns what the stub of an image extends, and what is in the register then, by the
// rules of its release. See systemd-measure(1).
func MeasureUKI(image []byte) (all []UKIMeasured, register [sha256.Size]byte, err error) {
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, register, fmt.Errorf("read the image: %w", err)
	}
	magic := f.Section(".sdmagic")
	if magic == nil {
		return nil, register, errors.New("it is not a unified kernel image by systemd's stub")
	}
	text, err := inMemory(image, magic)
	if err != nil {
		return nil, register, err
	}
	says := stubVersion.FindSubmatch(text)
	if says == nil {
		return nil, register, fmt.Errorf("the stub tells no release: %.60q", text)
	}
	release, err := strconv.Atoi(string(says[1]))
	if err != nil || release < measured[0].since || release > newest {
		return nil, register, fmt.Errorf("what release %s of the stub measures is not known, of %d to %d it is", says[1],
			measured[0].since, newest)
	}
	for _, m := range measured {
		s := f.Section(m.name)
		if s == nil || release < m.since {
			continue
		}
		data, err := inMemory(image, s)
		if err != nil {
			return nil, register, err
		}
		name := sha256.Sum256(append([]byte(m.name), 0))
		all = append(all, UKIMeasured{m.name, name, sha256.Sum256(data)})
		for _, d := range [][sha256.Size]byte{name, sha256.Sum256(data)} {
			register = sha256.Sum256(slices.Concat(register[:], d[:]))
		}
	}
	return all, register, nil
}

// KernelOf returns the kernel of an image.
func KernelOf(image []byte) ([]byte, error) {
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	s := f.Section(Kernel)
	if s == nil {
		return nil, errors.New("the image has no kernel")
	}
	return inMemory(image, s)
}

// inMemory returns a section as firmware loads it: zeros follow where it has fewer bytes in
// the file.
func inMemory(image []byte, s *pe.Section) ([]byte, error) {
	raw := min(s.Size, s.VirtualSize)
	if int64(s.Offset)+int64(raw) > int64(len(image)) || s.VirtualSize > 1<<30 {
		return nil, fmt.Errorf("section %s is not whole", s.Name)
	}
	data := make([]byte, s.VirtualSize)
	copy(data, image[s.Offset:s.Offset+raw])
	return data, nil
}
