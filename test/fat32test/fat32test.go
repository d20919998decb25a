// SPDX-License-Identifier: Apache-2.0

// Package fat32test has disks in Disk whose power can be cut, and file systems of FAT32 that
// other programs made, for tests.
package fat32test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

const sector = 512

// Disk is a disk in memory that notes what is written to it, and when it was asked to keep it.
type Disk struct {
	base   []byte           // as it was, shared
	Now    map[int64][]byte // sectors that were written since
	Writes []Write          // one without data is a Sync
	Fails  error            // of writes
}

// Write is one that a disk was asked for.
type Write struct {
	At   int64
	Data []byte
}

// New returns a disk with a content, which it leaves as it is.
func New(base []byte) *Disk { return &Disk{base: base, Now: map[int64][]byte{}} }

func (d *Disk) ReadAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > int64(len(d.base)) {
		return 0, io.ErrUnexpectedEOF
	}
	copy(p, d.base[at:])
	for n := at / sector * sector; n < at+int64(len(p)); n += sector {
		if data := d.Now[n]; data != nil {
			copy(p[max(n-at, 0):], data[max(at-n, 0):])
		}
	}
	return len(p), nil
}

func (d *Disk) WriteAt(p []byte, at int64) (int, error) {
	if d.Fails != nil {
		return 0, d.Fails
	}
	if at%sector != 0 || len(p)%sector != 0 {
		return 0, fmt.Errorf("%d bytes at %d are no sectors", len(p), at)
	}
	d.Writes = append(d.Writes, Write{at, bytes.Clone(p)})
	d.put(p, at)
	return len(p), nil
}

func (d *Disk) put(p []byte, at int64) {
	for n := 0; n < len(p); n += sector {
		d.Now[at+int64(n)] = bytes.Clone(p[n : n+sector])
	}
}

func (d *Disk) Sync() error {
	d.Writes = append(d.Writes, Write{})
	return d.Fails
}

// Image is a file with the content of the disk.
func (d *Disk) Image(t *testing.T) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "esp"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // what matters is read again
	const block = 64 << 10
	p := make([]byte, block)
	for at := int64(0); at < Size; at += block {
		if _, err := d.ReadAt(p, at); err != nil {
			t.Fatal(err)
		}
		if len(bytes.Trim(p, "\x00")) > 0 {
			if _, err := f.WriteAt(p, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Truncate(Size); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// Size of the file systems that [Made] makes: FAT32 has at least 65525 clusters.
const Size = 34 << 20

// Made is a file system by mkfs.vfat with files of others and one in EFI/Linux.
func Made(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	require.Tool(t, "mkfs.vfat", "fsck.vfat", "mmd", "mcopy", "mtype")
	image := filepath.Join(t.TempDir(), "esp")
	host := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(host, data, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `truncate -s "$2" "$1" && mkfs.vfat -F 32 -s 1 "$1" >/dev/null && mmd -i "$1" ::/EFI ::/EFI/BOOT ::/EFI/Linux ::/loader && mcopy -i "$1" "$3" ::/EFI/BOOT/BOOTX64.EFI && mcopy -i "$1" "$3" "::/EFI/Linux/$4"`
	if out, err := exec.Command("sh", "-ec", script, "sh", image, fmt.Sprint(Size), host, name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// IsWhole wants fsck.vfat to find nothing wrong, but for clusters that a cut has lost, and what
// is said to be free.
func (d *Disk) IsWhole(t *testing.T, lost bool) error {
	t.Helper()
	out, err := exec.Command("fsck.vfat", "-n", d.Image(t)).CombinedOutput()
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		known := slices.ContainsFunc([]string{"fsck.fat", "Reclaimed", "Free cluster", "Auto-correcting", "Leaving", "FATs differ", "Using first FAT", "files,"}, func(s string) bool { return strings.Contains(line, s) })
		if line != "" && (!known || !lost) {
			return fmt.Errorf("fsck.vfat: %w\n%s", err, out)
		}
	}
	return nil
}

// Cuts calls look with each disk that a power cut can have left of what was written to d since
// start: cut before, within and after every write. What was written since the disk was asked to
// keep it is there in any part, sector by sector.
func (d *Disk) Cuts(start map[int64][]byte, look func(when string, disk *Disk)) {
	dice := rand.New(rand.NewPCG(1, 2))
	kept := 0
	for i := range d.Writes {
		if d.Writes[i].Data == nil {
			kept = i
		}
		for try := range 4 {
			cut := &Disk{base: d.base, Now: maps.Clone(start)}
			for n, w := range d.Writes[:i+1] {
				for at := 0; at < len(w.Data); at += sector {
					if n < kept || try == 0 || try > 1 && dice.IntN(2) == 0 {
						cut.put(w.Data[at:at+sector], w.At+int64(at))
					}
				}
			}
			look(fmt.Sprintf("cut %d of %d, try %d", i, len(d.Writes), try), cut)
		}
	}
}
