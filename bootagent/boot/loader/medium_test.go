// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/paths"
)

// bench is a /sys and a /dev with files for devices.
type bench struct{ sys, dev string }

func (b bench) add(t *testing.T, name string, content []byte) {
	t.Helper()
	dir := filepath.Join(b.sys, "class/block", name)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(b.dev, 0o755), os.WriteFile(filepath.Join(dir, "uevent"), []byte("MAJOR=1\nDEVNAME="+name+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if content != nil {
		if err := os.WriteFile(filepath.Join(b.dev, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// system returns content with a medium's file system at a byte.
func system(at int, label string) []byte {
	data := make([]byte, at+512)
	copy(data[at+3:], "caisson ")
	copy(data[at+71:], fmt.Sprintf("%-11s", label))
	copy(data[at+82:], "FAT32   ")
	return data
}

// TestPlaces: partitions of a medium come first, then a disc, of which the kernel reads no
// partitions; nothing else is a place.
func TestPlaces(t *testing.T) {
	b := bench{filepath.Join(t.TempDir(), "sys"), filepath.Join(t.TempDir(), "dev")}
	b.add(t, "sr0", system(partitionAt, paths.MediumLabel))
	b.add(t, "sda", system(partitionAt, paths.MediumLabel))
	b.add(t, "sda1", system(0, paths.MediumLabel))
	b.add(t, "sdb1", system(0, "OTHER"))
	b.add(t, "sdc", make([]byte, 4096))
	b.add(t, "loop0", system(0, paths.MediumLabel))
	b.add(t, "sr1", nil) // without a disc
	want := []place{{filepath.Join(b.dev, "sda1"), 0}, {filepath.Join(b.dev, "sda"), partitionAt}, {filepath.Join(b.dev, "sr0"), partitionAt}}
	if got := places(b.sys, b.dev); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNoMedium(t *testing.T) {
	b := bench{filepath.Join(t.TempDir(), "sys"), filepath.Join(t.TempDir(), "dev")}
	b.add(t, "sda", make([]byte, 4096))
	if m, err := MountMedia(b.sys, b.dev, filepath.Join(t.TempDir(), "at")); !errors.Is(err, ErrNoMedium) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestEachMedium: each that carries a layout is there, whatever comes before it: a loader
// alone, or one that cannot be read. A stick is not there twice.
func TestEachMedium(t *testing.T) {
	broken := errors.New("it cannot be read")
	mount := func(p place, at string) error {
		switch filepath.Base(p.device) {
		case "sdb1":
			return nil
		case "sdc1":
			return broken
		}
		return os.Mkdir(filepath.Join(at, paths.MediumLayout), 0o700)
	}
	at := t.TempDir()
	list := []place{{"/dev/sda1", 0}, {"/dev/sdb1", 0}, {"/dev/sdc1", 0}, {"/dev/nvme0n1p2", 0}, {"/dev/nvme0n1", partitionAt}, {"/dev/sda", partitionAt}, {"/dev/sdaa", partitionAt}, {"/dev/sr0", partitionAt}}
	m, err := mountEach(list, at, mount)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, n := range []string{"0", "3", "6", "7"} {
		want = append(want, filepath.Join(at, n, paths.MediumLayout))
	}
	if !slices.Equal(m.Layouts, want) || len(m.Passed) != 1 || !errors.Is(m.Passed[0], broken) {
		t.Errorf("%v passed %v, want %v", m.Layouts, m.Passed, want)
	}
	if m, err := mountEach(list[2:3], at, mount); !errors.Is(err, broken) {
		t.Errorf("%+v, %v", m, err)
	}
}
