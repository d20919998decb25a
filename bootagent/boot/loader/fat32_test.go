// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/fat32test"
	"github.com/caisson-os/caisson/test/require"
)

const (
	size  = fat32test.Size
	linux = "EFI/Linux"
	one   = "caisson-1767225600-0123456789ab.efi"
	two   = "caisson-1767225601-ba9876543210+3.efi"
	free  = "caisson-1767225601-ba9876543210.efi"
)

// made is a file system with a loader.
func made(t *testing.T) []byte { return fat32test.Made(t, one, fat32Loader(1)) }

// fat32Loader is the content of a file that is one.
func fat32Loader(n byte) []byte { return bytes.Repeat([]byte{n, 'l', 'o', 'a', 'd', 'e', 'r'}, 3000) }

// fat32Content reads a file as mtools do, nil where it is not there.
func fat32Content(t *testing.T, m *fat32test.Disk, name string) []byte {
	t.Helper()
	out, err := exec.Command("mtype", "-i", m.Image(t), "::/"+name).Output()
	if err != nil {
		return nil
	}
	return out
}

// TestChanges: what is changed others read, and fsck.vfat has nothing to say.
func TestChanges(t *testing.T) {
	m := fat32test.New(made(t))
	v, err := OpenVolume(m, size)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 40 { // the folder grows
		if err := v.Create(linux, fmt.Sprintf("other-%030d.efi", n), bytes.NewReader(fat32Loader(byte(n))), int64(len(fat32Loader(byte(n))))); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []error{
		v.Create(linux, two, bytes.NewReader(fat32Loader(2)), int64(len(fat32Loader(2)))), v.Rename(linux, two, free), v.Rename(linux, free, "SHORT.EFI"), v.Rename(linux, "SHORT.EFI", free), v.Remove(linux, fmt.Sprintf("other-%030d.efi", 7)),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if err := m.IsWhole(t, false); err != nil {
		t.Error(err)
	}
	files, err := v.Files(linux)
	if err != nil || len(files) != 41 || !slices.ContainsFunc(files, func(f File) bool { return f.Name == free && f.Size == int64(len(fat32Loader(2))) }) {
		t.Errorf("%d files, %v", len(files), err)
	}
	for name, want := range map[string][]byte{one: fat32Loader(1), free: fat32Loader(2), two: nil, fmt.Sprintf("other-%030d.efi", 39): fat32Loader(39), fmt.Sprintf("other-%030d.efi", 7): nil} {
		if got := fat32Content(t, m, linux+"/"+name); !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
		}
	}
	again, err := OpenVolume(m, size)
	if err != nil || again.Room() != v.Room() {
		t.Errorf("%v, and another room", err)
	}
}

// TestFat32PowerCuts cuts the power before, within and after every write of an update: what was
// there is there, and what is new is there as a whole or not at all. What was written since the
// disk was asked to keep it may be there in any part, sector by sector.
func TestFat32PowerCuts(t *testing.T) {
	require.Slow(t)
	few := made(t)
	more := fat32test.New(few)
	if v, err := OpenVolume(more, size); err != nil {
		t.Fatal(err)
	} else {
		for n := range 3 { // the records of the next file would straddle two sectors
			if err := v.Create(linux, fmt.Sprintf("other-%030d.efi", n), strings.NewReader("x"), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, start := range map[string]map[int64][]byte{"few files": {}, "more files": more.Now} {
		t.Run(name, func(t *testing.T) {
			m := fat32test.New(few)
			m.Now = maps.Clone(start)
			v, err := OpenVolume(m, size)
			if err != nil {
				t.Fatal(err)
			}
			data := fat32Loader(2)
			if err := errors.Join(v.Create(linux, two, bytes.NewReader(data), int64(len(data))), v.Rename(linux, two, free), v.Remove(linux, one)); err != nil {
				t.Fatal(err)
			}
			cuts := 0
			m.Cuts(start, func(when string, disk *fat32test.Disk) {
				after(t, disk, cuts%25 == 0, when)
				cuts++
			})
			t.Logf("%d cuts", cuts)
		})
	}
}

// after wants a loader that starts on a disk after a cut, and that the next change succeeds.
func after(t *testing.T, m *fat32test.Disk, check bool, when string) {
	t.Helper()
	v, err := OpenVolume(m, size)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	files, err := v.Files(linux)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	whole := 0
	for _, f := range files {
		want := map[string][]byte{one: fat32Loader(1), two: fat32Loader(2), free: fat32Loader(2)}[f.Name]
		if want == nil {
			continue
		}
		whole++
		var got bytes.Buffer
		if err := v.Read(linux, f.Name, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %s is torn", when, f.Name)
		}
	}
	if whole == 0 {
		t.Errorf("%s: no loader is left", when)
	}
	if check {
		if err := m.IsWhole(t, true); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	if err := v.Create(linux, "next.efi", strings.NewReader("next"), 4); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if check {
		if err := m.IsWhole(t, true); err != nil {
			t.Errorf("%s, and then changed: %v", when, err)
		}
	}
}

// TestRefusals: a change that cannot be made changes nothing that counts.
func TestRefusals(t *testing.T) {
	start := made(t)
	for _, row := range []struct {
		name string
		do   func(*Volume) error
		want string
	}{
		{"full", func(v *Volume) error { return v.Create(linux, two, bytes.NewReader(make([]byte, size)), size) }, "no room"},
		{"short", func(v *Volume) error { return v.Create(linux, two, strings.NewReader("12"), 3) }, "EOF"},
		{"long", func(v *Volume) error { return v.Create(linux, two, strings.NewReader("1234"), 3) }, "does not end after 3"},
		{"there", func(v *Volume) error { return v.Create(linux, one, strings.NewReader("1"), 1) }, "there already"},
		{"nowhere", func(v *Volume) error { return v.Create("EFI/None", two, strings.NewReader("1"), 1) }, "no folder"},
		{"a name", func(v *Volume) error { return v.Create(linux, "../x", strings.NewReader("1"), 1) }, "cannot be a name"},
		{"gone", func(v *Volume) error { return v.Rename(linux, two, free) }, "not there"},
		{"onto another", func(v *Volume) error { return v.Rename(linux, one, strings.ToUpper(one)) }, "there already"},
		{"remove", func(v *Volume) error { return v.Remove(linux, two) }, "not there"},
		{"read-only", func(v *Volume) error {
			v.d.(*fat32test.Disk).Fails = os.ErrPermission
			return v.Create(linux, two, strings.NewReader("1"), 1)
		}, "permission denied"},
	} {
		m := fat32test.New(start)
		v, err := OpenVolume(m, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := row.do(v); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if err := m.IsWhole(t, false); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestDamaged: what is not whole is not opened.
func TestDamaged(t *testing.T) {
	start := made(t)
	v, err := OpenVolume(fat32test.New(start), size)
	if err != nil {
		t.Fatal(err)
	}
	f, err := v.folder(linux)
	if err != nil {
		t.Fatal(err)
	}
	file := f.find(one)
	for name, hurt := range map[string]func(*Volume, []byte){
		"no file system":       func(_ *Volume, d []byte) { clear(d[:sector]) },
		"no tables":            func(_ *Volume, d []byte) { d[16] = 0 },
		"larger than its disk": func(_ *Volume, d []byte) { d[35] = 1 },
		"a chain that is cut":  func(v *Volume, d []byte) { clear(d[v.tableAt+4*int64(file.first):][:4]) },
		"a loop":               func(v *Volume, d []byte) { d[v.tableAt+4*int64(file.first)] = byte(file.first) },
		"a size":               func(v *Volume, d []byte) { d[v.at(f.list[0])+int64(file.record)*32+30]++ },
		"a lost table":         func(v *Volume, d []byte) { clear(d[v.tableAt : v.tableAt+v.tableLen]) },
		"garbage": func(v *Volume, d []byte) {
			for i := v.dataAt; i < v.dataAt+1<<20; i++ {
				d[i] = byte(i*31) | 1
			}
		},
	} {
		data := bytes.Clone(start)
		hurt(v, data)
		if _, err := OpenVolume(fat32test.New(data), size); err == nil {
			t.Errorf("%s: it is opened", name)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(int64(0), []byte("x"))
	f.Add(int64(11), []byte{0, 2, 1, 32})
	start := make([]byte, 1<<20)
	copy(start, "\xeb\x58\x90mkfs.fat\x00\x02\x01\x20\x00\x02")
	start[36], start[44], start[48] = 8, 2, 1
	copy(start[32:], []byte{0, 8, 0, 0})
	copy(start[82:], "FAT32")
	start[510], start[511] = 0x55, 0xaa
	copy(start[32*sector+8:], []byte{0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, at int64, data []byte) {
		image := bytes.Clone(start)
		if at < 0 || at >= int64(len(image)) {
			return
		}
		copy(image[at:], data)
		v, err := OpenVolume(fat32test.New(image), int64(len(image)))
		if err != nil {
			return
		}
		_, _ = v.Files("EFI")                                // nothing panics
		_ = v.Create("EFI", "a", bytes.NewReader(data), 100) // likewise
	})
}

// Read copies a file of a folder.
func (v *Volume) Read(folder, name string, to io.Writer) error {
	f, err := v.folder(folder)
	if err != nil {
		return err
	}
	e := f.find(name)
	if e == nil || e.folder {
		return fmt.Errorf("%s/%s is not there", folder, name)
	}
	left := e.Size
	for _, c := range v.clusters(e.first) {
		n := min(left, v.cluster)
		if _, err := io.Copy(to, io.NewSectionReader(v.d, v.at(c), n)); err != nil {
			return err
		}
		left -= n
	}
	return nil
}
