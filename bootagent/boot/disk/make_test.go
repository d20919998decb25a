// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// bench is a machine whose disks are files.
type bench struct {
	sys, dev string
	said     strings.Builder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	require.Tool(t, "mke2fs", "e2fsck", "sgdisk")
	return &bench{sys: t.TempDir(), dev: t.TempDir()}
}

const diskSize = smallest

// add gives the machine a disk; facts are files of its sysfs directory. The file is
// returned.
func (b *bench) add(t *testing.T, name string, size int64, facts map[string]string) string {
	t.Helper()
	image := filepath.Join(b.dev, name)
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(b.sys, "devices/pci0", name)
	b.resize(t, name, size)
	files := map[string]string{"uevent": "DEVNAME=" + name, "device/model": "x", "queue/logical_block_size": "512"}
	for file, text := range facts {
		files[file] = text
	}
	for file, text := range files {
		writeFile(t, filepath.Join(at, file), text+"\n")
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(b.sys, "class/block"), 0o755), os.Symlink(at, filepath.Join(b.sys, "class/block", name))); err != nil {
		t.Fatal(err)
	}
	return image
}

func (b *bench) resize(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(filepath.Join(b.dev, name), size); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(b.sys, "devices/pci0", name, "size"), fmt.Sprint(size/512))
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) finder(ask *spec.NewStateDisk) *Finder {
	return &Finder{Sys: b.sys, Dev: b.dev, Fleet: "metal-a", Ask: ask, Mounter: links{}, Programs: hosts{}, begins: Mebibyte,
		Say: func(format string, args ...any) { fmt.Fprintf(&b.said, format+"\n", args...) }}
}

// makes returns the device that a finder makes a state disk of.
func makes(f *Finder) string {
	device, _ := f.Make()
	return device
}

// hosts are the programs of the machine that runs the test.
type hosts struct{ E2fsPrograms }

// isState reports what is wrong with a disk that was made: its table as sgdisk reads it,
// its file system as e2fsck does.
func isState(t *testing.T, image string) error {
	t.Helper()
	out, err := exec.Command("sgdisk", "-v", "-i", "1", image).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("No problems found")) || !bytes.Contains(out, []byte("'caisson-state'")) || bytes.Contains(out, []byte("corrupt")) {
		return fmt.Errorf("sgdisk: %v\n%s", err, out)
	}
	part := image + ".part"
	defer os.Remove(part)
	if out, err := exec.Command("sh", "-c", `cp --sparse=always "$1" "$2" && fallocate --collapse-range --offset 0 --length 1048576 "$2" || dd if="$1" of="$2" bs=1M skip=1 conv=sparse status=none; e2fsck -fn "$2"`, "sh", image, part).CombinedOutput(); err != nil {
		return fmt.Errorf("e2fsck: %w\n%s", err, out)
	}
	d, err := os.Open(image)
	if err != nil {
		return err
	}
	defer d.Close() // only read
	if _, step, _, err := ReadNote(d, diskSize, 512); err != nil || step != "" {
		return fmt.Errorf("the note stays: %q, %v", step, err)
	}
	return nil
}

// A note whose identifiers are longer or shorter than those of a table is not of this program.
func TestNoteOfOtherIdentifiers(t *testing.T) {
	l := Layout{Disk: [16]byte{1}, Partition: [16]byte{2}, Start: Mebibyte, Size: diskSize, Sector: 512}
	note := l.Note(StepGrowing, "f")
	for _, test := range []struct {
		note string
		ok   bool
	}{
		{note, true},
		{strings.Replace(note, "01000000", "0100000000000000", 1), false},
		{strings.Replace(note, "02000000", "0200000000000000", 1), false},
		{strings.Replace(note, "01000000", "010000", 1), false},
		{strings.Replace(note, "02000000", "0200000", 1), false},
		{strings.Replace(note, "01000000", "0100000x", 1), false},
	} {
		again, step, _, err := ReadNote(bytes.NewReader(l.First(test.note)), diskSize, 512)
		if (err == nil) != test.ok || test.ok && (again != l || step != StepGrowing) {
			t.Errorf("%q: %+v, %q, %v", test.note, again, step, err)
		}
	}
}

func TestMakeTakesOnlyWhatIsEmpty(t *testing.T) {
	ask, serial := &spec.NewStateDisk{}, &spec.NewStateDisk{Disks: []string{"0x5000ABCD"}}
	for _, test := range []struct {
		name   string
		ask    *spec.NewStateDisk
		facts  map[string]string
		fill   string // a script, $1 is the disk
		second map[string]string
		says   string
		notes  string // and no fault
		makes  bool
	}{
		{name: "empty", ask: ask, makes: true},
		{name: "not asked", says: ""},
		{name: "named by its WWN", ask: serial, facts: map[string]string{"device/wwid": "naa.5000abcd"}, second: map[string]string{}, makes: true},
		{name: "another is named", ask: serial, facts: map[string]string{"serial": "5000abce"}, says: "has other disks"},
		{name: "two are empty", ask: ask, second: map[string]string{}, says: "not the only one"},
		{name: "removable", ask: ask, facts: map[string]string{"removable": "1"}, notes: "no state disk is made: DEV/vda: it is a removable medium"},
		{name: "two removable", ask: ask, facts: map[string]string{"removable": "1"}, second: map[string]string{"removable": "1"}, notes: "DEV/vdb: it is a removable medium"},
		{name: "removable beside one that does not fit", ask: ask, facts: map[string]string{"removable": "1"}, second: map[string]string{"ro": "1"}, says: "a removable medium; if it is meant, name it in layer.stateDisk.disks; DEV/vdb: the disk is read-only"},
		{name: "removable, and another is named", ask: serial, facts: map[string]string{"removable": "1"}, says: "has other disks"},
		{name: "removable and named", ask: serial, facts: map[string]string{"removable": "1", "serial": "5000ABCD"}, makes: true},
		{name: "read-only", ask: ask, facts: map[string]string{"ro": "1"}, says: "the disk is read-only"},
		{name: "part of something", ask: ask, facts: map[string]string{"holders/dm-0/x": ""}, says: "other devices are made of it"},
		{name: "small", ask: &spec.NewStateDisk{AtLeast: diskSize + 1}, says: "are needed"},
		{name: "garbage at the beginning", ask: ask, fill: `printf x | dd of="$1" bs=1 seek=300000 conv=notrunc status=none`, says: "something at byte 300000"},
		{name: "garbage at the end", ask: ask, fill: `printf x | dd of="$1" bs=1 seek=$((67108864-1)) conv=notrunc status=none`, says: "something at byte 67108863"},
		{name: "data in the middle", ask: ask, fill: `dd if=/dev/urandom of="$1" bs=1M seek=30 count=10 conv=notrunc status=none`, says: "something at byte"},
		{name: "of another fleet, half made", ask: ask, fill: `printf 'caisson-state making 00112233445566778899aabbccddeeff 00112233445566778899aabbccddeeff 1048576 metal-b\n' | dd of="$1" conv=notrunc status=none`, says: "not empty"},
		{name: "half made, and then another's table", ask: ask, fill: `sgdisk -n 1:0:0 "$1" >/dev/null; printf 'caisson-state making 00112233445566778899aabbccddeeff 00112233445566778899aabbccddeeff 1048576 metal-a\n' | dd of="$1" conv=notrunc status=none`, says: "another partition table is on it"},
		{name: "a note that nobody wrote", ask: ask, fill: `printf 'caisson-state making x y 1048576 metal-a\n' | dd of="$1" conv=notrunc status=none`, says: "cannot be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			image := b.add(t, "vda", diskSize, test.facts)
			if test.second != nil {
				b.add(t, "vdb", diskSize, test.second)
			}
			if test.fill != "" {
				command(t, "sh", "-ec", test.fill, "sh", image)
			}
			before := content(t, image)
			device, note := b.finder(test.ask).Make()
			made, said := device != "", strings.ReplaceAll(b.said.String(), b.dev, "DEV")
			if made != test.makes || !strings.Contains(said, test.says) || test.says == "" && said != "" {
				t.Errorf("made %v, and says %q", made, said)
			}
			if note = strings.ReplaceAll(note, b.dev, "DEV"); !strings.Contains(note, test.notes) || test.notes == "" && note != "" {
				t.Errorf("notes %q", note)
			}
			if made {
				if err := isState(t, image); err != nil {
					t.Error(err)
				}
			} else if !bytes.Equal(content(t, image), before) {
				t.Error("the disk was written to")
			}
		})
	}
}

// A state disk that is not used, whatever the reason, is not replaced by another one.
func TestMakeLeavesADiskThatIsThere(t *testing.T) {
	b := newBench(t)
	b.add(t, "vda", diskSize, nil)
	at := filepath.Join(b.sys, "devices/pci1/vdb/vdb1")
	writeFile(t, filepath.Join(at, "uevent"), "DEVNAME=vdb1\nPARTN=1\nPARTNAME=caisson-state\n")
	if err := os.Symlink(at, filepath.Join(b.sys, "class/block/vdb1")); err != nil {
		t.Fatal(err)
	}
	if makes(b.finder(&spec.NewStateDisk{})) != "" || !strings.Contains(b.said.String(), "vdb1 is one, and is not used") {
		t.Errorf("says %q", b.said.String())
	}
}

func TestMakeWithoutPrograms(t *testing.T) {
	b := newBench(t)
	image := b.add(t, "vda", diskSize, nil)
	f := b.finder(&spec.NewStateDisk{})
	f.Programs = nil
	if makes(f) != "" || !strings.Contains(b.said.String(), "layer.stateDisk.create") || len(bytes.Trim(content(t, image), "\x00")) > 0 {
		t.Errorf("says %q", b.said.String())
	}
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// write is one that a cut may lose or tear; sync is one that it may not.
type write struct {
	at   int64
	data []byte
	sync bool
}

// recorder is a disk that notes what is done to it.
type recorder struct {
	*os.File
	log *[]write
}

func (r recorder) WriteAt(p []byte, at int64) (int, error) {
	*r.log = append(*r.log, write{at: at, data: bytes.Clone(p)})
	return r.File.WriteAt(p, at)
}

func (r recorder) Sync() error {
	*r.log = append(*r.log, write{sync: true})
	return r.File.Sync()
}

// recorded has mke2fs's writes noted, block by block.
type recorded struct {
	hosts
	log *[]write
}

func (r recorded) Make(device, label string, offset, size int64) error {
	before, err := os.ReadFile(device)
	if err != nil {
		return err
	}
	if err := r.hosts.Make(device, label, offset, size); err != nil {
		return err
	}
	after, err := os.ReadFile(device)
	if err != nil {
		return err
	}
	for at := 0; at < len(after); at += 4096 {
		if !bytes.Equal(before[at:at+4096], after[at:at+4096]) {
			*r.log = append(*r.log, write{at: int64(at), data: bytes.Clone(after[at : at+4096])})
		}
	}
	*r.log = append(*r.log, write{sync: true})
	return nil
}

// cut returns a disk's content after a cut at write n: everything up to the last sync before,
// and of what came later any sectors.
func cut(r *rand.Rand, image []byte, log []write, n int) []byte {
	disk := bytes.Clone(image)
	safe := 0
	for i, w := range log[:n] {
		if w.sync {
			safe = i
		}
	}
	for i, w := range log[:n] {
		for at := 0; at < len(w.data); at += 512 {
			if i <= safe || r.IntN(2) == 0 {
				copy(disk[w.at+int64(at):], w.data[at:min(at+512, len(w.data))])
			}
		}
	}
	return disk
}

// points are those at which the power goes: each of the loader's own writes, and some of
// the many of mke2fs.
func points(r *rand.Rand, log []write) (list []int) {
	for n := range len(log) + 1 {
		if n < 8 || n > len(log)-4 || r.IntN(len(log)/4+1) == 0 {
			list = append(list, n)
		}
	}
	return list
}

// The power goes while a state disk is made, at any write. The next boot has a state disk,
// made again or whole, and a loader that is not asked any more uses nothing half made.
func TestACutWhileItIsMade(t *testing.T) {
	require.Slow(t)
	b := newBench(t)
	image := b.add(t, "vda", diskSize, nil)
	var log []write
	f := b.finder(&spec.NewStateDisk{})
	f.Programs = recorded{log: &log}
	f.opener = func(w whole, flags int) (blockDevice, error) {
		d, err := w.alone(flags)
		return recorder{d, &log}, err
	}
	if makes(f) == "" {
		t.Fatal(b.said.String())
	}
	r := rand.New(rand.NewPCG(1, 2))
	list := points(r, log)
	for _, n := range list {
		if err := os.WriteFile(image, cut(r, make([]byte, diskSize), log, n), 0o600); err != nil {
			t.Fatal(err)
		}
		noted := unfinished(whole{device: image, size: diskSize, sector: 512}) == StepMaking
		made := makes(b.finder(&spec.NewStateDisk{}))
		if err := isState(t, image); err != nil {
			t.Fatalf("a cut at write %d of %d: noted %v, made %v: %v\n%s", n, len(log), noted, made, err, b.said.String())
		}
	}
	t.Logf("%d cuts in %d writes", len(list), len(log))
}

// TestRoomForALoader: what is made without more words leaves a gigabyte before the
// partition, and the file system is in the partition.
func TestRoomForALoader(t *testing.T) {
	b := newBench(t)
	const size = LayoutStart + 80*Mebibyte
	image := b.add(t, "vda", size, nil)
	small := b.add(t, "vdb", LayoutStart, nil)
	f := b.finder(&spec.NewStateDisk{})
	f.begins = 0
	if made := makes(f); made != filepath.Join(b.dev, "vda") {
		t.Fatalf("made %q, not %s (%s is too small): %s", made, image, small, &b.said)
	}
	if out := command(t, "sgdisk", "-i", "1", image); !strings.Contains(out, "First sector: 2099200 ") {
		t.Errorf("the partition is elsewhere:\n%s", out)
	}
	d, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // only read
	magic := make([]byte, 2)
	if _, err := d.ReadAt(magic, LayoutStart+1024+56); err != nil || string(magic) != "\x53\xef" {
		t.Errorf("no ext4 superblock in the partition: %x, %v", magic, err)
	}
}
