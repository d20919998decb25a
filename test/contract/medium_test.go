// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/test/require"
)

// TestACopiedDiskBecomesItsOwn: the loader knows the partition table of a disk that 'caisson
// image' wrote. It gives each copy identifiers of its own, and all that the disk has.
func TestACopiedDiskBecomesItsOwn(t *testing.T) {
	require.Tool(t, "sgdisk", "mke2fs")
	name := filepath.Join(t.TempDir(), "caisson.raw")
	m := media.Medium{Fleet: "metal-a", State: 64 << 20, Loader: &media.Loader{Image: []byte("loader"), Manager: []byte("manager"), Arch: "amd64", Date: time.Unix(1767225600, 0)}}
	if err := m.Write(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	const size, sector = 3 << 30, 512
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	d, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // of a test
	one := own(t, d, size)
	other := own(t, d, size)
	if one.Disk == other.Disk || one.Partition == other.Partition {
		t.Error("two copies get one identifier")
	}
	if _, err := d.WriteAt(one.First(one.Note(disk.StepGrowing, "metal-a")), 0); err != nil {
		t.Fatal(err)
	}
	// A cut here: what the note says is done by the next boot.
	again, step, fleet, err := disk.ReadNote(d, size, sector)
	if err != nil || step != disk.StepGrowing || fleet != "metal-a" || again != one {
		t.Fatalf("%+v, %q, %q, %v; want %+v", again, step, fleet, err, one)
	}
	for range 2 { // before the table was written, and behind
		if err := again.Alone(d); err != nil {
			t.Errorf("a disk that is being made its own is taken for another's: %v", err)
		}
		if err := again.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Serial(d); err != nil {
		t.Fatal(err)
	}
	serial := make([]byte, 4)
	if _, err := d.ReadAt(serial, disk.Mebibyte+67); err != nil || !bytes.Equal(serial, one.Disk[:4]) {
		t.Errorf("serial number %x, %v; want %x", serial, err, one.Disk[:4])
	}
	if _, err := d.WriteAt(one.First(""), 0); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sgdisk", "-v", "-p", name).CombinedOutput()
	for _, want := range []string{"No problems found", "8300  " + paths.StateLabel, "EF00  " + paths.BootLabel, "2.0 GiB"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("sgdisk: %v, want %q\n%s", err, want, out)
		}
	}
	if strings.Contains(strings.ToLower(string(out)), paths.ImageDisk) {
		t.Errorf("the disk has the identifier of its image\n%s", out)
	}
	const much = 16 << 20
	if _, more, err := disk.WiderTable(d, size, sector, much); err != nil || more {
		t.Errorf("it is made its own twice: %v", err)
	}
	if err := d.Truncate(size + 1<<30); err != nil {
		t.Fatal(err)
	}
	if wider, more, err := disk.WiderTable(d, size+1<<30, sector, much); err != nil || !more || wider.Disk != one.Disk || !wider.Boot {
		t.Errorf("a larger disk is not filled: %+v, %v", wider, err)
	}
}

// own returns the table that the loader would give to a copy.
func own(t *testing.T, d *os.File, size int64) disk.Layout {
	t.Helper()
	table, more, err := disk.WiderTable(d, size, 512, 16<<20)
	if err != nil || !more || !table.Boot || table.Copied() {
		t.Fatalf("%+v, %v, %v", table, more, err)
	}
	return table
}

// TestADiskWithALayer: the loader knows the table of a disk that carries one, whose first
// partition is larger.
func TestADiskWithALayer(t *testing.T) {
	require.Tool(t, "mke2fs")
	name := filepath.Join(t.TempDir(), "caisson.raw")
	m := media.Medium{Fleet: "metal-a", State: 64 << 20, Carried: t.TempDir(), Loader: &media.Loader{Image: []byte("loader"), Manager: []byte("manager"), Arch: "amd64", Date: time.Unix(1767225600, 0)}}
	const layer = 5 << 20
	if err := os.WriteFile(filepath.Join(m.Carried, "layer"), bytes.Repeat([]byte("x"), layer), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	const size = 3 << 30
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // only read
	if table := own(t, d, size); table.Start < disk.LayoutStart+layer {
		t.Errorf("%+v", table)
	}
}

// TestANodesDiskStaysItsOwn: the disk of one node has that node's identifiers from the
// beginning.
func TestANodesDiskStaysItsOwn(t *testing.T) {
	require.Tool(t, "mke2fs")
	name := filepath.Join(t.TempDir(), "caisson.raw")
	m := media.Medium{Fleet: "metal-a", Node: "alpha", State: 64 << 20, Loader: &media.Loader{Image: []byte("loader"), Manager: []byte("manager"), Arch: "amd64", Date: time.Unix(1767225600, 0)}}
	if err := m.Write(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // only read
	info, err := d.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if table, more, err := disk.WiderTable(d, info.Size(), 512, 16<<20); err != nil || more || !table.Boot || table.Copied() {
		t.Errorf("%+v, %v, %v", table, more, err)
	}
}
