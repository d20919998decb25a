// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fat32test"
)

// program is the content of a loader.
func program(number int64) []byte { return bytes.Repeat(fmt.Appendf(nil, "loader %d ", number), 900) }

// wanted returns the loader that fleet:current names.
func wanted(number int64) spec.Loader {
	data := program(number)
	b := spec.Blob{Digest: digest.Of(data), Size: int64(len(data))}
	return spec.Loader{Arch: "amd64", Number: number, Manifest: b.Digest, Image: b, ESP: b}
}

// brought is a registry that has every loader.
func brought(number int64) func(spec.Blob) (io.ReadCloser, error) {
	return func(spec.Blob) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(program(number))), nil }
}

func opened(t *testing.T, d *fat32test.Disk) *Partition {
	t.Helper()
	p, err := open(d, fat32test.Size)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// firmware starts systemd-boot on a disk, which counts a start of the loader that comes first.
func firmware(t *testing.T, d *fat32test.Disk) (booted string) {
	t.Helper()
	p := opened(t, d)
	e := p.list[0]
	if !e.counted || e.left == 0 {
		return e.file
	}
	v, err := OpenVolume(d, fat32test.Size)
	if err != nil {
		t.Fatal(err)
	}
	booted = fmt.Sprintf("caisson-%d-%s+%d-%d.efi", e.number, e.id, e.left-1, tries-e.left+1)
	if err := v.Rename(folder, e.file, booted); err != nil {
		t.Fatal(err)
	}
	return booted
}

func files(t *testing.T, d *fat32test.Disk) (list []string) {
	t.Helper()
	for _, e := range opened(t, d).list {
		name := strings.Replace(e.file, "-"+e.id, "", 1)
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(name, "caisson-"), ".efi"))
	}
	return list
}

// first is a disk with loader 1.
func first(t *testing.T) *fat32test.Disk {
	return fat32test.New(fat32test.Made(t, of(wanted(1)).good(), program(1)))
}

// TestLife follows loaders through good boots and bad ones.
func TestLife(t *testing.T) {
	d := first(t)
	ahead := false
	follow := func(number int64, why string) {
		t.Helper()
		p := opened(t, d)
		came, said, err := p.Follow(wanted(number), brought(number))
		if err != nil || !strings.Contains(said.Text, why) || (why == "" && said.Text != "") || came != 0 && came != number || said.Ahead != ahead {
			t.Errorf("loader %d: %d, %+v, %v", number, came, said, err)
		}
	}
	has := func(want ...string) {
		t.Helper()
		if got := files(t, d); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	keep := func(booted string) {
		t.Helper()
		if _, err := opened(t, d).Keep(booted); err != nil {
			t.Error(err)
		}
	}
	follow(1, "")
	has("1")
	follow(2, "") // comes, on trial
	has("2+3", "1")
	keep(firmware(t, d))
	has("2", "1") // it was good
	keep(firmware(t, d))
	has("2", "1") // nothing to do
	follow(3, "")
	has("3+3", "2") // the oldest goes
	for range tries {
		firmware(t, d) // and does not come up
	}
	has("2", "3+0-3")
	if booted := firmware(t, d); !strings.HasPrefix(booted, "caisson-2-") {
		t.Errorf("%s is started", booted)
	}
	follow(3, "loader 3 was started 3 times")
	follow(2, "") // which is started
	ahead = true
	follow(1, "loaders never go back")
	ahead = false
	has("2", "3+0-3")
	follow(4, "")
	has("4+3", "2")
	follow(5, "") // before the fourth was started: it was never needed
	has("5+3", "2")
	keep(firmware(t, d))
	other := wanted(5)
	other.Image = wanted(7).Image
	if _, why, err := opened(t, d).Follow(other, brought(7)); err != nil || !strings.Contains(why.Text, "another loader 5") || why.Ahead {
		t.Errorf("%+v, %v", why, err)
	}
	ahead = true
	follow(2, "the disk has 5, and loaders never go back") // it is there, and not started
	has("5", "2")
	if err := d.IsWhole(t, false); err != nil {
		t.Error(err)
	}
}

// TestPowerCuts cuts the power at every write of two updates and of a trial that ends well:
// what systemd-boot starts next is whole each time, and where that is on trial, one that is good
// stands behind it.
func TestPowerCuts(t *testing.T) {
	d := first(t)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"update", func() error { _, _, err := opened(t, d).Follow(wanted(2), brought(2)); return err }},
		{"good boot", func() error { booted := firmware(t, d); _, err := opened(t, d).Keep(booted); return err }},
		{"update that removes", func() error { _, _, err := opened(t, d).Follow(wanted(3), brought(3)); return err }},
		{"second good boot", func() error { booted := firmware(t, d); _, err := opened(t, d).Keep(booted); return err }},
	} {
		before := maps.Clone(d.Now)
		d.Writes = nil
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		cuts := 0
		d.Cuts(before, func(when string, cut *fat32test.Disk) {
			cuts++
			p := opened(t, cut)
			if len(p.list) == 0 {
				t.Fatalf("%s, %s: no loader is left", step.name, when)
			}
			if e := p.list[0]; e.counted && !slices.ContainsFunc(p.list, func(e entry) bool { return !e.counted }) {
				t.Errorf("%s, %s: %s is on trial, and nothing stands behind it", step.name, when, e.file)
			}
			for _, e := range p.list {
				if got := content(t, cut, e); !bytes.Equal(got, program(e.number)) {
					t.Errorf("%s, %s: %s is torn", step.name, when, e.file)
				}
			}
			// The same once more leads to the same.
			booted := firmware(t, cut)
			if _, err := opened(t, cut).Keep(booted); err != nil {
				t.Errorf("%s, %s: keep: %v", step.name, when, err)
			}
			if _, why, err := opened(t, cut).Follow(wanted(9), brought(9)); err != nil || why != (Why{}) || files(t, cut)[0] != "9+3" {
				t.Errorf("%s, %s: the next update: %v, %+v, %q", step.name, when, err, why, files(t, cut))
			}
		})
		t.Logf("%s: %d cuts", step.name, cuts)
	}
}

// content reads a loader from a disk.
func content(t *testing.T, d *fat32test.Disk, e entry) []byte {
	t.Helper()
	v, err := OpenVolume(d, fat32test.Size)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := v.Read(folder, e.file, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestFaults: what fails leaves the first loader, and says what failed.
func TestFaults(t *testing.T) {
	base := fat32test.Made(t, of(wanted(1)).good(), program(1))
	large := wanted(2)
	large.Image.Size = fat32test.Size
	zero := wanted(0)
	for _, row := range []struct {
		name  string
		want  spec.Loader
		fetch func(spec.Blob) (io.ReadCloser, error)
		fails error
		says  string
	}{
		{"another program", wanted(2), brought(3), nil, "not sha256:"},
		{"no registry", wanted(2), func(spec.Blob) (io.ReadCloser, error) { return nil, errors.New("dead") }, nil, "fetch loader 2: dead"},
		{"full", large, brought(2), nil, "no room"},
		{"read-only", wanted(2), brought(2), os.ErrPermission, "permission denied"},
		{"no loader", zero, brought(0), nil, "names no loader"},
	} {
		d := fat32test.New(base)
		p := opened(t, d)
		d.Fails = row.fails
		if _, _, err := p.Follow(row.want, row.fetch); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want %q", row.name, err, row.says)
		}
		d.Fails = nil
		if got := files(t, d); !slices.Equal(got, []string{"1"}) {
			t.Errorf("%s: %q", row.name, got)
		}
		if err := d.IsWhole(t, false); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	damaged := bytes.Clone(base)
	clear(damaged[32*512 : 64*512]) // the tables
	if _, err := open(fat32test.New(damaged), fat32test.Size); err == nil {
		t.Error("a damaged file system is opened")
	}
}

func TestNames(t *testing.T) {
	for file, want := range map[string]string{
		"caisson-1767225600-0123456789ab.efi": "good", "caisson-1767225600-0123456789ab+3.efi": "trial", "caisson-1-0123456789ab+2-1.efi": "trial", "caisson-1-0123456789ab+0-3.efi": "spent",
		"caisson-1-0123456789AB.efi": "", "caisson-x-0123456789ab.efi": "", "debian-6.12.efi": "", "caisson-1-0123456789ab.efi.bak": "", "caisson-1-0123456789ab+.efi": "", "caisson-9999999999999999999-0123456789ab.efi": "",
	} {
		e, ok := parse(file)
		got := ""
		switch {
		case ok && e.spent():
			got = "spent"
		case ok && e.counted:
			got = "trial"
		case ok:
			got = "good"
		}
		if got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
}

func TestBooted(t *testing.T) {
	dir := t.TempDir()
	if file, err := Booted(dir); file != "" || err != nil {
		t.Errorf("%q, %v", file, err)
	}
	data := []byte{6, 0, 0, 0}
	for _, unit := range utf16.Encode([]rune("\\EFI\\Linux\\caisson-2-0123456789ab+2-1.efi\x00")) {
		data = binary.LittleEndian.AppendUint16(data, unit)
	}
	if err := os.WriteFile(filepath.Join(dir, countPath), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err := Booted(dir); file != "caisson-2-0123456789ab+2-1.efi" || err != nil {
		t.Errorf("%q, %v", file, err)
	}
}

// TestAnotherSystemsFiles: on a partition that another system writes to its files stay, whatever their
// names, and a loader comes beside them. A program by the name of a loader with a higher number is taken
// for one, and said: that it is not started is for firmware that verifies.
func TestAnotherSystemsFiles(t *testing.T) {
	base := fat32test.Made(t, of(wanted(1)).good(), program(1))
	others := []string{"/EFI/Linux/debian-6.12.48+deb13-amd64.efi", "/EFI/Linux/caisson.efi", "/EFI/Linux/caisson-2-nothex+3.efi", "/EFI/Microsoft/Boot/bootmgfw.efi", "/loader/entries/a long name of an entry.conf"}
	put := func(base []byte, names ...string) []byte {
		t.Helper()
		image := fat32test.New(base).Image(t)
		script := `mmd -D s -i "$1" ::/EFI/Microsoft ::/EFI/Microsoft/Boot ::/loader/entries || true; i=$1; shift; for name; do echo "$name" | mcopy -i "$i" - "::$name"; done`
		if out, err := exec.Command("sh", append([]string{"-ec", script, "sh", image}, names...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(image)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	d := fat32test.New(put(base, others...))
	if came, _, err := opened(t, d).Follow(wanted(2), brought(2)); came != 2 || err != nil {
		t.Fatalf("%d, %v", came, err)
	}
	firmware(t, d)
	if err := d.IsWhole(t, false); err != nil {
		t.Error(err)
	}
	for _, name := range others {
		out, err := exec.Command("mtype", "-i", d.Image(t), "::"+name).Output()
		if err != nil || string(out) != name+"\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	d = fat32test.New(put(base, "/EFI/Linux/caisson-900-0123456789ab.efi"))
	if came, said, err := opened(t, d).Follow(wanted(2), brought(2)); came != 0 || !said.Ahead || err != nil {
		t.Errorf("beside a higher number: %d, %+v, %v", came, said, err)
	}
}
