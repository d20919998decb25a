// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"crypto/sha256"
	"debug/pe"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

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
