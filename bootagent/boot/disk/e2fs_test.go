// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// open opens the state partition of a loop device.
func (b *bench) open(t *testing.T, device string) (*Disk, string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "state")
	part := filepath.Join(b.sys, "devices/pci0/vda/vda1")
	writeFile(t, filepath.Join(part, "uevent"), "DEVNAME="+filepath.Base(device)+"\nPARTN=1\nPARTNAME=caisson-state\n")
	if err := os.MkdirAll(filepath.Join(b.sys, "class/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Symlink(part, filepath.Join(b.sys, "class/block/vda1")) // it may be there
	f := b.finder(nil)
	f.Dev, f.Mounter, f.Scratch = "/dev", kernel{}, filepath.Join(t.TempDir(), "look")
	b.said.Reset()
	return f.Open(at, 0), at
}

// What e2fsck repairs without a question is used, what it does not is set aside.
func TestADamagedFileSystem(t *testing.T) {
	for _, test := range []struct {
		name, script string
		used         bool
		says         string
	}{
		{"well", "true", true, ""},
		{"counts of free blocks", `debugfs -w -R 'ssv free_blocks_count 7' "$1" 2>/dev/null; debugfs -w -R 'ssv state 2' "$1" 2>/dev/null`, true, "was damaged, and is repaired"},
		{"a table of inodes", `dd if=/dev/urandom of="$1" bs=4096 seek=$(dumpe2fs "$1" 2>/dev/null | sed -n 's/.*Inode table at \([0-9]*\)-.*/\1/p' | head -n1) count=4 conv=notrunc status=none`, false, "e2fsck could not repair it by itself"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			dev, _ := device(t, false)
			command(t, "mkfs.ext4", "-q", "-F", "-b", "4096", dev)
			command(t, "sh", "-ec", test.script, "sh", dev)
			used, at := b.open(t, dev)
			if used != nil {
				if err := unix.Unmount(at, 0); err != nil {
					t.Error(err)
				}
			}
			if (used != nil) != test.used || !strings.Contains(b.said.String(), test.says) || test.says == "" && b.said.Len() > 0 {
				t.Errorf("used %v, and says %q", used, b.said.String())
			}
		})
	}
}

// A disk that lets itself only be read is read, though e2fsck wants to write to it.
func TestAReadOnlyDiskIsNotRepaired(t *testing.T) {
	b := newBench(t)
	dev, _ := device(t, true)
	used, at := b.open(t, dev)
	if used == nil || used.ReadOnly == nil || b.said.Len() > 0 {
		t.Fatalf("%+v, and says %q", used, b.said.String())
	}
	for range 2 { // the memory, and the disk below it
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	}
}

// A disk that became larger: its table takes the new end, and its file system follows.
func TestAGrownDisk(t *testing.T) {
	b := newBench(t)
	image := b.add(t, "vda", diskSize, nil)
	if makes(b.finder(&spec.NewStateDisk{})) == "" {
		t.Fatal(b.said.String())
	}
	b.resize(t, "vda", 2*diskSize)
	f := b.finder(&spec.NewStateDisk{})
	w := disks(b.sys, b.dev)[0]
	if err := f.growPartition(partition{disk: w}); err != nil {
		t.Fatal(err)
	}
	if err := isState(t, image); err != nil {
		t.Error(err)
	}
	if end := fmt.Sprintf("Last sector: %d ", (2*diskSize-Mebibyte)/512-1); !strings.Contains(command(t, "sgdisk", "-i", "1", image), end) {
		t.Errorf("the partition does not end at %q:\n%s", end, command(t, "sgdisk", "-i", "1", image))
	}
}

// The power goes while a table is written for a disk that grew: the next look has one
// that is whole.
func TestACutWhileItGrows(t *testing.T) {
	require.Slow(t)
	b := newBench(t)
	image := b.add(t, "vda", diskSize, nil)
	if makes(b.finder(&spec.NewStateDisk{})) == "" {
		t.Fatal(b.said.String())
	}
	b.resize(t, "vda", diskSize+64*Mebibyte)
	before := content(t, image)
	var log []write
	f := b.finder(&spec.NewStateDisk{})
	f.opener = func(w whole, flags int) (blockDevice, error) {
		d, err := w.alone(flags)
		return recorder{d, &log}, err
	}
	if err := f.growPartition(partition{disk: disks(b.sys, b.dev)[0]}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for n := range len(log) + 1 {
		if err := os.WriteFile(image, cut(r, before, log, n), 0o600); err != nil {
			t.Fatal(err)
		}
		f := b.finder(&spec.NewStateDisk{})
		f.mend()
		if err := f.growPartition(partition{disk: disks(b.sys, b.dev)[0]}); err != nil {
			t.Fatal(err)
		}
		if err := isState(t, image); err != nil {
			t.Fatalf("a cut at write %d of %d: %v\n%s", n, len(log), err, b.said.String())
		}
	}
}

// Of the disks of others none is opened for that.
func TestMendOpensWhatMayBeOurs(t *testing.T) {
	b := newBench(t)
	foreign := map[string]string{"sdb1/uevent": "DEVNAME=sdb1\nPARTN=1\nPARTNAME=root", "sdb1/partition": "1"}
	mine := map[string]string{"vdb1/uevent": "DEVNAME=vdb1\nPARTN=1\nPARTNAME=caisson-state", "vdb1/partition": "1"}
	for name, facts := range map[string]map[string]string{"vda": nil, "vdb": mine, "sdb": foreign, "sdc": {"removable": "1"}, "sdd": {"ro": "1"}, "sde": {"holders/dm-0": ""}} {
		b.add(t, name, diskSize, facts)
	}
	b.add(t, "sdf", diskSize/2, nil)
	var opened []string
	f := b.finder(nil)
	f.opener = func(w whole, flags int) (blockDevice, error) {
		opened = append(opened, filepath.Base(w.device))
		return w.alone(flags)
	}
	f.mend()
	if got := strings.Join(opened, " "); got != "vda vdb" {
		t.Errorf("opened %q", got)
	}
}

// mayGrow reports whether this process has CAP_SYS_RESOURCE.
func mayGrow(t *testing.T) bool {
	t.Helper()
	var all uint64
	for line := range strings.Lines(string(content(t, "/proc/self/status"))) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			if _, err := fmt.Sscanf(strings.TrimSpace(text), "%x", &all); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all>>unix.CAP_SYS_RESOURCE&1 == 1
}

// A file system takes what its device has more, while it is used, and keeps what is on it.
// Where the kernel does not let it, it is used as it is, and that is said.
func TestAFileSystemGrows(t *testing.T) {
	dev, image := loop(t, diskSize, "mkfs.ext4")
	at := filepath.Join(t.TempDir(), "state")
	var said []string
	f := &Finder{Mounter: kernel{}, Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	use := func() (size uint64) {
		t.Helper()
		if readOnly, err := f.prepare(&candidate{partition: partition{device: dev}, finder: f}, at); err != nil || readOnly != nil {
			t.Fatal(readOnly, err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(at, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * uint64(st.Bsize)
	}
	small := use()
	writeFile(t, filepath.Join(at, "kept"), "kept")
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 3*diskSize); err != nil {
		t.Fatal(err)
	}
	command(t, "losetup", "--set-capacity", dev)
	if err := f.Mounter.Grow(dev, "/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it does not see that there is more: %v", err)
	}
	large := use()
	if string(content(t, filepath.Join(at, "kept"))) != "kept" {
		t.Error("it lost what was on it")
	}
	if mayGrow(t) {
		if large < 2*small || len(said) > 0 {
			t.Errorf("it had %d bytes and has %d: %q", small, large, said)
		}
	} else if large != small || len(said) != 1 || !strings.Contains(said[0], "does not grow: ") || !strings.Contains(said[0], "operation not permitted") {
		t.Errorf("nobody may grow it here: it had %d bytes and has %d: %q", small, large, said)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	command(t, "e2fsck", "-fn", dev)
}

// A file system that was copied from an image gets an identifier of its own, once. Another
// one keeps what it has.
func TestACopiedFileSystemBecomesItsOwn(t *testing.T) {
	dev, _ := loop(t, diskSize, "")
	at := t.TempDir()
	use := func() (id string) {
		t.Helper()
		if err := (kernel{}).Mount(dev, at, false); err != nil {
			t.Fatal(err)
		}
		err := kernel{}.Grow(dev, at)
		if unmount := unix.Unmount(at, 0); err != nil || unmount != nil {
			t.Fatal(err, unmount)
		}
		command(t, "e2fsck", "-fn", dev)
		for line := range strings.Lines(command(t, "dumpe2fs", "-h", dev)) {
			if text, ok := strings.CutPrefix(line, "Filesystem UUID:"); ok {
				return strings.TrimSpace(text)
			}
		}
		t.Fatal("dumpe2fs tells no identifier")
		return ""
	}
	command(t, "mkfs.ext4", "-q", "-U", paths.ImageState, "-O", "metadata_csum_seed", dev)
	own := use()
	if again := use(); own == paths.ImageState || again != own {
		t.Errorf("%s, then %s", own, again)
	}
	const given = "0c5b2444-7e51-4c1e-8f25-6d1f5b2f0a11"
	command(t, "mkfs.ext4", "-q", "-F", "-U", given, dev)
	if kept := use(); kept != given {
		t.Errorf("a file system of nobody's image has %s now", kept)
	}
}
