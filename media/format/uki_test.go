// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/ukitest"
)

func sections() []UKISection {
	return []UKISection{{".osrel", []byte("ID=caisson\n")}, {".cmdline", []byte("panic=30")}, {".initrd", bytes.Repeat([]byte("i"), 5000)}, {Kernel, bytes.Repeat([]byte("k"), 3000)}}
}

func TestSectionsAreFound(t *testing.T) {
	var out bytes.Buffer
	if err := WriteUKI(&out, ukitest.Stub(8), sections()); err != nil {
		t.Fatal(err)
	}
	check(t, out.Bytes(), sections())
}

// check reads an image as firmware does: sections lie apart in memory and have their bytes.
func check(t *testing.T, image []byte, want []UKISection) *pe.File {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	o := f.OptionalHeader.(*pe.OptionalHeader64)
	end := uint32(0)
	for _, s := range f.Sections {
		if s.VirtualAddress < end || s.VirtualAddress+s.VirtualSize > o.SizeOfImage || int64(s.Offset)+int64(s.Size) > int64(len(image)) {
			t.Errorf("section %s: %+v behind %#x, in an image of %#x", s.Name, s.SectionHeader, end, o.SizeOfImage)
		}
		end = s.VirtualAddress + s.VirtualSize
	}
	for _, w := range want {
		s := f.Section(w.Name)
		if s == nil {
			t.Errorf("no section %s", w.Name)
			continue
		}
		data, err := s.Data()
		if err != nil || !bytes.HasPrefix(data, w.Data) || s.VirtualAddress%o.SectionAlignment != 0 || int(s.VirtualSize) < len(w.Data) {
			t.Errorf("section %s: %v, %+v", w.Name, err, s.SectionHeader)
		}
	}
	return f
}

// TestKernelHasRoom: a kernel gets as much memory as its own header asks for.
func TestKernelHasRoom(t *testing.T) {
	kernel := ukitest.Stub(1)
	binary.LittleEndian.PutUint32(kernel[0x40+coffSize+sizeOfImageAt:], 0x7654321)
	want := []UKISection{{Kernel, kernel}}
	var out bytes.Buffer
	if err := WriteUKI(&out, ukitest.Stub(1), want); err != nil {
		t.Fatal(err)
	}
	if s := check(t, out.Bytes(), want).Section(Kernel); s.VirtualSize != 0x7654321 {
		t.Errorf("%#x bytes of memory", s.VirtualSize)
	}
}

// TestRoomThatIsNotEmpty: what a stub has behind its table of sections is not taken for a
// part of the added ones, as their relocations.
func TestRoomThatIsNotEmpty(t *testing.T) {
	stub := ukitest.Stub(8)
	f, err := pe.NewFile(bytes.NewReader(stub))
	if err != nil {
		t.Fatal(err)
	}
	table := 0x40 + coffSize + int(f.SizeOfOptionalHeader) + sectionSize*len(f.Sections)
	for i := table; i < int(f.OptionalHeader.(*pe.OptionalHeader64).SizeOfHeaders); i++ {
		stub[i] = 0xff
	}
	var out bytes.Buffer
	if err := WriteUKI(&out, stub, sections()); err != nil {
		t.Fatal(err)
	}
	check(t, out.Bytes(), sections())
}

func TestUkiSameBytes(t *testing.T) {
	var one, other bytes.Buffer
	if err := WriteUKI(&one, ukitest.Stub(8), sections()); err != nil {
		t.Fatal(err)
	}
	if err := WriteUKI(&other, ukitest.Stub(8), sections()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), other.Bytes()) {
		t.Error("two images of the same sections differ")
	}
}

func TestUkiRefusals(t *testing.T) {
	small := ukitest.Stub(1)
	damaged := ukitest.Stub(1)
	binary.LittleEndian.PutUint32(damaged[0x40+coffSize+36:], 0)
	wide := ukitest.Stub(1)
	binary.LittleEndian.PutUint32(wide[0x40+coffSize+36:], 1<<30)
	for _, row := range []struct {
		stub     []byte
		sections []UKISection
		want     string
	}{
		{[]byte("not a program"), nil, "read the stub"},
		{damaged, nil, "damaged"},
		{wide, nil, "damaged"},
		{small, make([]UKISection, 20), "room for"},
		{small, []UKISection{{".text", nil}}, "already"},
		{small, []UKISection{{".toolongname", nil}}, "at most 8 bytes"},
		{ukitest.Stub(4), []UKISection{{Kernel, nil}, {".initrd", nil}}, "the last one"},
	} {
		if err := WriteUKI(&bytes.Buffer{}, row.stub, row.sections); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}

// TestOnTheStub: the stub of Debian's package takes the sections, and objdump(1) finds them.
func TestOnTheStub(t *testing.T) {
	require.Tool(t, "objdump")
	stub, err := os.ReadFile("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
	if err != nil {
		require.Missing(t, "tools", "package systemd-boot-efi: "+err.Error())
	}
	var out bytes.Buffer
	if err := WriteUKI(&out, stub, sections()); err != nil {
		t.Fatal(err)
	}
	check(t, out.Bytes(), sections())
	name := filepath.Join(t.TempDir(), "caisson.efi")
	if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("objdump", "-h", name).CombinedOutput()
	for _, s := range sections() {
		if err != nil || !strings.Contains(string(text), s.Name) {
			t.Errorf("objdump: %v, no %s\n%s", err, s.Name, text)
		}
	}
}

// FuzzWrite: whatever the stub and the kernel are, Write ends, and what it makes has its
// sections.
func FuzzWrite(f *testing.F) {
	f.Add(ukitest.Stub(8), []byte("kernel"))
	f.Add(ukitest.Stub(0), ukitest.Stub(1))
	f.Add([]byte("MZ"), []byte(nil))
	f.Fuzz(func(t *testing.T, stub, kernel []byte) {
		var out bytes.Buffer
		if WriteUKI(&out, stub, []UKISection{{".osrel", []byte("ID=caisson\n")}, {Kernel, kernel}}) != nil {
			return
		}
		p, err := pe.NewFile(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Section(Kernel); s == nil || int(s.VirtualSize) < len(kernel) {
			t.Errorf("%+v", s)
		}
	})
}
