// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/test/attack"
)

// links stands for the kernel: a mounted partition is a link to its content.
type links map[string]string

func (l links) Mount(device, at string, _ bool) error {
	dir, ok := l[filepath.Base(device)]
	if !ok {
		return fmt.Errorf("mount %s as ext4: invalid argument", device)
	}
	if err := os.Remove(at); err != nil {
		return err
	}
	return os.Symlink(dir, at)
}

func (links) Grow(string, string) error { return nil }

func (links) Reread(string) error { return nil }

func (links) Unmount(at string) error {
	return errors.Join(os.Remove(at), os.Mkdir(at, 0o700))
}

// open has a node look for its disk in the world of a row.
func open(t *testing.T, row attack.StateDisk, rules check.List[*candidate], order func(a, b *candidate) int) (uses, says string) {
	t.Helper()
	dir := t.TempDir()
	row.Sysfs(t, dir)
	mounts := links{}
	dev := filepath.Join(dir, "dev")
	for _, p := range row.Disks {
		writeFile(t, filepath.Join(dev, filepath.Base(p.Path)), p.Sector+strings.Repeat("\x00", 4096))
		if !p.Broken {
			mounts[p.Device] = t.TempDir()
			p.Fill(t, mounts[p.Device])
		}
	}
	var talk strings.Builder
	f := &Finder{Sys: dir, Dev: dev, Scratch: filepath.Join(dir, "look"), Fleet: "metal-a", Machine: attack.StateDiskMachine,
		Named: row.Named, Mounter: mounts, rules: rules, order: order, Say: func(format string, args ...any) { fmt.Fprintf(&talk, format+"\n", args...) }}
	if d := f.Open(filepath.Join(dir, "state"), 0); d != nil {
		uses = filepath.Base(d.Device)
	}
	return uses, talk.String()
}

// rows are those about which disk is used.
func rows(t *testing.T) (list []attack.StateDisk) {
	t.Helper()
	for _, row := range attack.LoadClass[attack.StateDisk](t, "statedisk") {
		if row.Check == "" && row.Lines == nil || strings.HasPrefix(row.Check, "disk/") {
			list = append(list, row)
		}
	}
	return list
}

func TestAttacks(t *testing.T) {
	for _, row := range rows(t) {
		t.Run(row.Name, func(t *testing.T) {
			uses, says := open(t, row, rules, better)
			if uses != row.Uses || !strings.Contains(says, row.Says) {
				t.Errorf("uses %q and says %q; want %q and %q", uses, says, row.Uses, row.Says)
			}
			if (row.Check == "") != (says == "") {
				t.Errorf("a control is silent, an attack is not: %q", says)
			}
		})
	}
}

// TestNoCheckIsVacuous takes each check out, and wants every row that names it to
// come out otherwise.
func TestNoCheckIsVacuous(t *testing.T) {
	named := map[string]int{}
	for _, row := range rows(t) {
		_, name, _ := strings.Cut(row.Check, "/")
		named[name]++
		order := better
		switch name {
		case "", "mount": // what does not mount is not used, whatever is checked
			continue
		case "order":
			order = func(a, b *candidate) int { return strings.Compare(a.device, b.device) }
		}
		if uses, says := open(t, row, rules.Without(name), order); uses == row.Uses && strings.Contains(says, row.Says) {
			t.Errorf("%s: without %q all is the same: %q, %q", row.Name, name, uses, says)
		}
	}
	for _, name := range append(rules.Names(), "order", "mount") {
		if named[name] == 0 {
			t.Errorf("no attack names the check %q", name)
		}
		delete(named, name)
	}
	delete(named, "")
	if len(named) > 0 {
		t.Errorf("attacks name checks that do not exist: %v", named)
	}
}

// A disk that is known ends the wait; a new one leaves the known one its time.
func TestTheKnownDiskMayBeLate(t *testing.T) {
	dir := t.TempDir()
	ours := attack.Partition{Device: "vdb1", Path: "pci0/virtio2/block/vdb", Files: map[string]string{"owner.json": `{"fleet":"metal-a"}`}}
	fresh := attack.Partition{Device: "vda1", Path: "pci0/virtio1/block/vda"}
	mounts := links{"vda1": t.TempDir(), "vdb1": t.TempDir()}
	ours.Fill(t, mounts["vdb1"])
	attack.StateDisk{Disks: []attack.Partition{fresh}}.Sysfs(t, dir)
	appears := func() { attack.StateDisk{Disks: []attack.Partition{ours}}.Sysfs(t, dir) }
	time.AfterFunc(100*time.Millisecond, appears)
	f := &Finder{Sys: dir, Dev: "/dev", Scratch: filepath.Join(dir, "look"), Fleet: "metal-a", Mounter: mounts, Say: t.Logf}
	begun := time.Now()
	if d := f.Open(filepath.Join(dir, "state"), 20*time.Second); d == nil || d.Device != "/dev/vdb1" {
		t.Errorf("%+v", d)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the known disk was there, and it took %s", took)
	}
}

func TestClaim(t *testing.T) {
	dir := t.TempDir()
	f := &Finder{Fleet: "metal-a", Machine: "m1"}
	if err := f.Claim(dir); err != nil {
		t.Fatal(err)
	}
	f.Machine = "" // a firmware that has lost its UUID unlearns nothing
	if err := f.Claim(dir); err != nil {
		t.Fatal(err)
	}
	if o, err := readOwner(dir); err != nil || *o != (owner{"metal-a", "m1"}) {
		t.Errorf("%+v, %v", o, err)
	}
	f.Machine = "m2" // the site named the disk for another machine
	if err := f.Claim(dir); err != nil {
		t.Fatal(err)
	}
	if o, err := readOwner(dir); err != nil || o.Machine != "m2" {
		t.Errorf("%+v, %v", o, err)
	}
}

// table is a GUID partition table with one entry, as sgdisk writes it.
func table(sector int) []byte {
	b := make([]byte, 4*sector)
	copy(b[sector:], "EFI PART")
	binary.LittleEndian.PutUint64(b[sector+72:], 2)
	binary.LittleEndian.PutUint32(b[sector+80:], 128)
	binary.LittleEndian.PutUint32(b[sector+84:], 128)
	copy(b[2*sector+16:], "\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff")
	return b
}

func TestPartitionUUID(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		uuid, err := partitionUUID(bytes.NewReader(table(sector)), int64(sector), 1)
		if err != nil || uuid != "00112233-4455-6677-8899-aabbccddeeff" {
			t.Errorf("sectors of %d: %q, %v", sector, uuid, err)
		}
	}
	// And by way of sysfs, as on a kernel that does not say it.
	sys, dev := t.TempDir(), t.TempDir()
	attack.StateDisk{Disks: []attack.Partition{{Device: "vda1", Path: "pci0/block/vda", Facts: map[string]string{
		"pci0/block/vda/uevent": "DEVNAME=vda", "pci0/block/vda/queue/logical_block_size": "4096"}}}}.Sysfs(t, sys)
	if err := os.WriteFile(filepath.Join(dev, "vda"), table(4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := partitions(sys, dev, ""); len(p) != 1 || p[0].uuid != "00112233-4455-6677-8899-aabbccddeeff" {
		t.Errorf("%+v", p)
	}
}

func FuzzPartitionUUID(f *testing.F) {
	f.Add(table(512), 1)
	f.Fuzz(func(t *testing.T, data []byte, number int) {
		if uuid, err := partitionUUID(bytes.NewReader(data), 512, number); err == nil && len(uuid) != 36 {
			t.Errorf("%q", uuid)
		}
	})
}

// TestDescribe: what a disk does not say of itself is left out, as a virtual one says no model.
func TestDescribe(t *testing.T) {
	b := newBench(t)
	b.add(t, "vda", 8<<20, map[string]string{"device/model": "", "serial": "ABC"})
	b.add(t, "sdb", 8<<20, map[string]string{"device/model": "SAMSUNG", "serial": "DEF"})
	b.add(t, "vdc", 8<<20, map[string]string{"device/model": ""})
	for name, want := range map[string]string{
		"vda": b.dev + "/vda 8.4 MB, abc: nothing",
		"sdb": b.dev + "/sdb 8.4 MB, model SAMSUNG, def: nothing",
		"vdc": b.dev + "/vdc 8.4 MB: nothing",
	} {
		target, err := b.finder(nil).Target(b.dev + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Describe(); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRereadWhileLookedAt: on a running system udev opens each partition of a disk that was
// written to. The table is read once it has closed them.
func TestRereadWhileLookedAt(t *testing.T) {
	device, _ := loop(t, 8<<20, "", "--partscan")
	d, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // only read
	if err := announce(d, Layout{Start: 2 * Mebibyte}); err != nil {
		t.Fatal(err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(read(fmt.Sprintf("/sys/class/block/%sp%d/dev", filepath.Base(device), BootNumber)), "%d:%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(t.TempDir(), "part")
	if err := unix.Mknod(part, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatal(err)
	}
	looking, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, func() { looking.Close() }) // only read
	if err := (kernel{}).Reread(device); err != nil {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	attack.Partition{Files: map[string]string{
		"state.json": "{}", "journal/journal": "@pipe", "overlays": "@link /etc", "store/sha256/aa": "@link /etc/shadow",
		"identity/machine-id": "id", "exec/a.sh/out": "@link log", "persist/home/a/.profile": "@link elsewhere", "lost+found": "@link /",
	}}.Fill(t, dir)
	var talk strings.Builder
	f := &Finder{Say: func(format string, args ...any) { fmt.Fprintf(&talk, format+"\n", args...) }}
	if err := f.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left = append(left, name[len(dir)+1:])
		}
		return err
	})
	want := []string{"exec/a.sh/out", "identity/machine-id", "persist/home/a/.profile", "state.json"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, %v; want %q", left, err, want)
	}
	for _, gone := range []string{"journal/journal", "overlays", "store/sha256/aa", "lost+found"} {
		if !strings.Contains(talk.String(), gone+" on the state disk") {
			t.Errorf("%s is not said:\n%s", gone, talk.String())
		}
	}
}
