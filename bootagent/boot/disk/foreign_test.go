// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// foreignSize suits each of the tools.
const foreignSize = 320 << 20

// espStart is where the state partition of an installed disk of these tests starts.
const espStart = 16 * Mebibyte

// put writes bytes into a disk where no tool makes what they are of: md wants its driver,
// ZFS is not in Debian, BitLocker is Windows'.
func put(text string, at int64) string {
	return fmt.Sprintf(`printf '%s' | dd of="$1" bs=1 seek=%d conv=notrunc status=none`, text, at)
}

// foreign are disks that somebody made something of, by the tools that do, and what is said
// of each.
var foreign = []struct{ name, tool, script, says string }{
	{"MBR", "sfdisk", `printf 'label: dos\n,10M\n' | sfdisk -q "$1"`, "a partition table or boot sector"},
	{"GPT", "sgdisk", `sgdisk -n 1:0:0 "$1" >/dev/null`, "a GUID partition table"},
	{"GPT whose beginning was wiped", "sgdisk", `sgdisk -n 1:0:0 "$1" >/dev/null; dd if=/dev/zero of="$1" bs=1M count=2 conv=notrunc status=none`, "the copy of a GUID partition table"},
	{"ext2", "mke2fs", `mke2fs -q -F -t ext2 "$1"`, "an ext file system"},
	{"ext4", "mke2fs", `mke2fs -q -F -t ext4 "$1"`, "an ext file system"},
	{"xfs", "mkfs.xfs", `mkfs.xfs -q -f "$1"`, "an xfs file system"},
	{"btrfs", "mkfs.btrfs", `mkfs.btrfs -q -f "$1" 2>/dev/null`, "a btrfs file system"},
	{"f2fs", "mkfs.f2fs", `mkfs.f2fs -q "$1"`, "an f2fs file system"},
	{"NTFS", "mkntfs", `mkntfs -q -F -f "$1" 2>/dev/null`, "an NTFS file system"},
	{"exFAT", "mkfs.exfat", `mkfs.exfat "$1" >/dev/null`, "an exFAT file system"},
	{"FAT32", "mkfs.vfat", `mkfs.vfat -F 32 "$1" >/dev/null`, "a FAT file system"},
	{"FAT16", "mkfs.vfat", `mkfs.vfat -F 16 "$1" >/dev/null`, "a FAT file system"},
	{"swap", "mkswap", `mkswap -q "$1"`, "swap space"},
	{"squashfs", "mksquashfs", `mksquashfs /etc/hostname "$1.new" -quiet -no-progress >/dev/null; dd if="$1.new" of="$1" conv=notrunc status=none; rm "$1.new"`, "a squashfs image"},
	{"ISO 9660", "genisoimage", `genisoimage -quiet -o "$1.new" /etc/hostname; dd if="$1.new" of="$1" conv=notrunc status=none; rm "$1.new"`, "an ISO 9660 image"},
	{"LVM", "pvcreate", `loop=$(losetup -f --show "$1"); pvcreate --config 'devices{use_devicesfile=0}' --nolocking -y -ff "$loop" >/dev/null 2>&1; losetup -d "$loop"`, "an LVM physical volume"},
	{"LUKS1", "cryptsetup", `printf x | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 "$1" -`, "a LUKS volume"},
	{"LUKS2", "cryptsetup", `printf x | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "$1" -`, "a LUKS volume"},
	{"bcache", "make-bcache", `make-bcache -B "$1" >/dev/null`, "a bcache device"},
	{"md, 1.2", "", put(`\374\116\053\251`, 4096), "a member of an md RAID"},
	{"md, 0.90", "", put(`\374\116\053\251`, foreignSize-65536), "a member of an md RAID"},
	{"ZFS", "", put(`\014\261\272`, 135<<10), "a member of a ZFS pool"},
	{"ZFS, its end", "", put(`\014\261\272`, foreignSize-(512-200)<<10), "a member of a ZFS pool"},
	{"BitLocker", "", put(`\055FVE-FS-`, 3), "a BitLocker volume"},
	{"data alone", "", `dd if=/dev/urandom of="$1" bs=1M seek=30 count=20 conv=notrunc status=none`, "something at byte"},
}

// TestForeignDisks is the one rule of what may be erased: neither layer.stateDisk.create nor
// 'caisson-agent install' takes a disk that somebody made something of, and both say what that
// is. An explicit word for this disk has install take it, and it is then a disk that boots.
func TestForeignDisks(t *testing.T) {
	require.Root(t) // losetup
	for _, test := range foreign {
		t.Run(test.name, func(t *testing.T) {
			if test.tool != "" {
				require.Tool(t, test.tool)
			}
			b := newBench(t)
			image := b.add(t, "vda", foreignSize, map[string]string{"serial": "ABC"})
			command(t, "sh", "-ec", test.script, "sh", image)
			f := b.finder(&spec.NewStateDisk{Disks: []string{"ABC"}})
			f.begins = espStart
			f.opener = func(w whole, flags int) (blockDevice, error) {
				if flags != os.O_RDONLY {
					t.Error("it is opened to write")
				}
				return os.OpenFile(w.device, flags, 0)
			}
			if makes(f) != "" || !strings.Contains(b.said.String(), test.says) {
				t.Errorf("create says %q, want %q", b.said.String(), test.says)
			}
			target, err := f.Target("abc")
			if err != nil {
				t.Fatal(err)
			}
			if err := target.Check(false); !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("install: %v, want %q", err, test.says)
			}
			if lines := target.Describe(); !strings.Contains(lines[0], test.says) || !strings.Contains(lines[0], "abc") {
				t.Errorf("it is described as %q", lines)
			}
			if err := target.Check(true); err != nil {
				t.Errorf("with a word for this disk: %v", err)
			}
			f.opener = nil
			if err := target.Install(func(w io.WriterAt) error { _, err := w.WriteAt([]byte("esp"), 0); return err }); err != nil {
				t.Fatal(err)
			}
			installedOn(t, image)
		})
	}
}

// installedOn wants both partitions, and what was written into the first.
func installedOn(t *testing.T, image string) {
	t.Helper()
	out, err := exec.Command("sgdisk", "-v", "-i", "1", image).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("No problems found")) || !bytes.Contains(out, []byte("'caisson-state'")) {
		t.Errorf("sgdisk: %v\n%s", err, out)
	}
	part := image + ".part"
	defer os.Remove(part)
	command(t, "sh", "-ec", `dd if="$1" of="$2" bs=1M skip=$3 conv=sparse status=none; e2fsck -fn "$2" 2>&1`, "sh", image, part, fmt.Sprint(espStart/Mebibyte))
	d, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // only read
	if _, step, _, err := ReadNote(d, foreignSize, 512); err != nil || step != "" {
		t.Errorf("the note stays: %q, %v", step, err)
	}
	layout, _, own, err := OwnTable(d, foreignSize, 512)
	if err != nil || !own || !layout.Boot {
		t.Errorf("the table is %+v, %v, %v", layout, own, err)
	}
	first := make([]byte, 3)
	if _, err := d.ReadAt(first, Mebibyte); err != nil || string(first) != "esp" {
		t.Errorf("the partition of the loader has %q, %v", first, err)
	}
	if what := what(image, foreignSize); what != "a GUID partition table" {
		t.Errorf("what was on it still shows: %s", what)
	}
}

// TestDisksThatNoWordHelps: in use, read-only, small, unreadable, with other sectors, or not there.
func TestDisksThatNoWordHelps(t *testing.T) {
	for _, test := range []struct {
		name  string
		size  int64
		facts map[string]string
		fails error
		says  string
	}{
		{"in use", foreignSize, nil, unix.EBUSY, "it is in use"},
		{"read-only", foreignSize, map[string]string{"ro": "1"}, nil, "read-only"},
		{"part of something", foreignSize, map[string]string{"holders/dm-0/x": ""}, nil, "other devices are made of it"},
		{"small", smallest - 1, nil, nil, "are needed"},
		{"other sectors", foreignSize, map[string]string{"queue/logical_block_size": "4096"}, nil, "the sectors of"},
	} {
		b := newBench(t)
		b.add(t, "vda", test.size, test.facts)
		f := b.finder(nil)
		if test.fails != nil {
			f.opener = func(whole, int) (blockDevice, error) { return nil, test.fails }
		}
		target, err := f.Target(filepath.Join(b.dev, "vda"))
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Check(true); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
	b := newBench(t)
	b.add(t, "vda", foreignSize, map[string]string{"serial": "same"})
	b.add(t, "vdb", foreignSize, map[string]string{"serial": "same"})
	f := b.finder(&spec.NewStateDisk{})
	f.opener = func(w whole, flags int) (blockDevice, error) {
		d, err := os.OpenFile(w.device, flags, 0)
		return worn{d}, err
	}
	if makes(f) != "" || !strings.Contains(b.said.String(), "it cannot be read") {
		t.Errorf("an unreadable disk: create says %q", b.said.String())
	}
	target, err := f.Target(filepath.Join(b.dev, "vda"))
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Check(true); err == nil || !strings.Contains(err.Error(), "it cannot be read") {
		t.Errorf("an unreadable disk: %v", err)
	}
	for name, want := range map[string]string{"same": "are both called", "none": "there is no disk"} {
		if _, err := f.Target(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// worn is a disk of which only the first sector can be read.
type worn struct{ *os.File }

func (w worn) ReadAt(p []byte, at int64) (int, error) {
	if at > 0 || len(p) > 4096 {
		return 0, unix.EIO
	}
	return w.File.ReadAt(p, at)
}

// TestInstallThatIsCut: at whatever write the power goes, the disk is empty, says that it is
// being made, or is done; and the next one, without a word for it, goes through.
func TestInstallThatIsCut(t *testing.T) {
	require.Slow(t)
	for cut := 0; ; cut++ {
		b := newBench(t)
		image := b.add(t, "vda", foreignSize, nil)
		f := b.finder(nil)
		f.begins = espStart
		target, err := f.Target(filepath.Join(b.dev, "vda"))
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Check(false); err != nil {
			t.Fatal(err)
		}
		left := cut
		f.opener = func(w whole, flags int) (blockDevice, error) {
			d, err := os.OpenFile(w.device, flags, 0)
			return &lasting{d, &left}, err
		}
		fill := func(w io.WriterAt) error { _, err := w.WriteAt([]byte("esp"), 0); return err }
		err = target.Install(fill)
		f.opener = nil
		if err == nil {
			installedOn(t, image)
			t.Logf("%d cuts", cut)
			return
		}
		again, err := f.Target(filepath.Join(b.dev, "vda"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(again.Check(false), again.Install(fill)); err != nil {
			t.Fatalf("after cut %d: %v", cut, err)
		}
		installedOn(t, image)
	}
}

// lasting is a disk whose power goes after some writes.
type lasting struct {
	*os.File
	left *int
}

func (l *lasting) WriteAt(p []byte, at int64) (int, error) {
	if *l.left == 0 {
		return 0, unix.EIO
	}
	*l.left--
	return l.File.WriteAt(p, at)
}

// TestESPThatIsCut cuts the power at every write of a partition for a loader that comes beside a
// state partition in use: the next boot finds the disk as it was, or as it is to be.
func TestESPThatIsCut(t *testing.T) {
	made := false
	for cut := 0; !made; cut++ {
		b := newBench(t)
		image := b.add(t, "vda", LayoutStart+smallest, nil)
		f := b.finder(&spec.NewStateDisk{})
		f.begins = 0
		if makes(f) == "" {
			t.Fatal(b.said.String())
		}
		dir := filepath.Join(b.sys, "devices/pci0/vda")
		writeFile(t, filepath.Join(dir, "vda1/uevent"), "DEVNAME=vda1\nPARTNAME=caisson-state\n")
		writeFile(t, filepath.Join(dir, "vda1/partition"), "1")
		if err := os.Symlink(filepath.Join(dir, "vda1"), filepath.Join(b.sys, "class/block/vda1")); err != nil {
			t.Fatal(err)
		}
		e, err := ESPBeside(b.sys, b.dev, "/dev/vda1")
		if err != nil || e.Device != "" {
			t.Fatalf("%+v, %v", e, err)
		}
		before, left := e.made, cut
		e.opener = func(w whole) (blockDevice, error) {
			d, err := os.OpenFile(w.device, os.O_RDWR, 0)
			return &lasting{d, &left}, err
		}
		e.tell = func(blockDevice, Layout) error {
			writeFile(t, filepath.Join(dir, "vda2/uevent"), "DEVNAME=vda2\nPARTNAME=caisson\n")
			writeFile(t, filepath.Join(dir, "vda2/partition"), "2")
			return nil
		}
		err = e.Make("metal-a", func(w io.WriterAt) error { _, err := w.WriteAt([]byte("esp"), 0); return err })
		if made = err == nil; made && e.Device != filepath.Join(b.dev, "vda2") {
			t.Errorf("the partition is %s", e.Device)
		}
		if err := os.RemoveAll(filepath.Join(dir, "vda2")); err != nil { // the machine starts over: the kernel reads what there is
			t.Fatal(err)
		}
		b.finder(nil).mend()
		d, err := os.Open(image)
		if err != nil {
			t.Fatal(err)
		}
		after, _, own, err := OwnTable(d, LayoutStart+smallest, 512)
		first := make([]byte, 3)
		if _, readErr := d.ReadAt(first, Mebibyte); errors.Join(err, readErr, d.Close()) != nil || !own || after.Partition != before.Partition || after.Start != before.Start || made && !after.Boot || after.Boot && string(first) != "esp" {
			t.Errorf("after cut %d: %+v, own %v, %q, %v", cut, after, own, first, err)
		}
		if made {
			t.Logf("%d cuts", cut)
		}
	}
}

// TestESPBeside makes the partition of a loader beside a state partition in use, where that
// leaves the room, and finds it again.
func TestESPBeside(t *testing.T) {
	b := newBench(t)
	image := b.add(t, "vda", foreignSize, nil)
	f := b.finder(&spec.NewStateDisk{})
	if makes(f) == "" {
		t.Fatal(b.said.String())
	}
	state := filepath.Join(b.sys, "devices/pci0/vda/vda1")
	writeFile(t, filepath.Join(state, "uevent"), "DEVNAME=vda1\n")
	if err := os.Symlink(state, filepath.Join(b.sys, "class/block/vda1")); err != nil {
		t.Fatal(err)
	}
	if _, err := ESPBeside(b.sys, b.dev, "/dev/vda1"); !errors.Is(err, ErrNoRoom) {
		t.Errorf("an older state disk: %v", err)
	}
	command(t, "sh", "-ec", `sgdisk -d 1 -n 1:4096:0 -n 2:2048:4095 "$1" >/dev/null`, "sh", image)
	if _, err := ESPBeside(b.sys, b.dev, "/dev/vda1"); err == nil || !strings.Contains(err.Error(), "not as caisson makes it") {
		t.Errorf("a disk with another's partition: %v", err)
	}
}
