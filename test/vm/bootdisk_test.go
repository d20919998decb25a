// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// bootsFromDisk has nodes make a state disk of an empty one, and start from it.
var bootsFromDisk = []string{"layer:\n", "layer:\n  stateDisk: {create: true, boot: true}\n",
	"      - name: tree\n", "      - name: tree\n      - name: e2fsprogs\n      - name: systemd-boot-efi\n"}

// uuidOfDisk is of a machine whose disk knows it again.
const uuidOfDisk = "4c4c4544-0000-2010-8020-80c04f202020"

// publishLoader publishes what disks start, and returns its number.
func (f *Fleet) publishLoader(t *testing.T, more ...string) int64 {
	t.Helper()
	out := f.must(t, append([]string{"loader", "site.yaml", "--from", f.To(), "--registry", f.guest(), "--registry-plain-http", "--key", "keys/operator.key", "-o", "json"}, more...)...)
	var l spec.Loader
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatal(err)
	}
	return l.Number
}

// says waits for a line of the agent's.
func says(t *testing.T, s *machine.Session, line string) {
	t.Helper()
	run(t, s, fmt.Sprintf("until sudo journalctl -b -q --no-pager -u caisson-agent | grep -qF \"%s\"; do sleep 2; done", line)) // there may be an apostrophe in it
}

// loaders lists what is in EFI/Linux of a disk, as mtools read it.
func loaders(t *testing.T, disk string) string {
	t.Helper()
	out, err := exec.Command("mdir", "-b", "-i", disk+"@@1M", "::/EFI/Linux").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestLongBootFromDisk walks a machine from a CD onto its own disk: the loader makes a state disk of
// the empty one, the agent gives it the loader that the fleet has published, and from then on the
// machine starts from it, with neither CD nor boot network.
func TestLongBootFromDisk(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "sgdisk")
	f := fleet(t, bootsFromDisk...)
	f.ontoDisk(t, f.medium("alpha", "52:54:00:00:00:0a"))
}

// ontoDisk is the way of one from a CD to its own disk.
func (f *Fleet) ontoDisk(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	number := f.publishLoader(t, more...)
	o.UUID, o.Disk = uuidOfDisk, filepath.Join(f.Dir, "state.raw")
	sh(t, `truncate -s 2300M "$1"`, o.Disk)
	o.CD = f.image(t, "boot.iso", more...)
	m, s := f.arrives(t, o)
	says(t, s, fmt.Sprintf("this machine's disk starts loader %d", number))
	shutDown(t, m, s)
	sh(t, `sgdisk -v "$1" | grep -q 'No problems found' && sgdisk -p "$1" | grep -q 'EF00  caisson$'`, o.Disk)
	o.CD = ""
	m, s = f.arrives(t, o)
	if console := m.Console.String(); !strings.Contains(console, "caisson: state disk /dev/vda1") || strings.Contains(console, "on trial") {
		t.Error("it did not start from the disk's first loader, with its state")
	}
	if n := strings.Count(loaders(t, o.Disk), fmt.Sprintf("caisson-%d-", number)); n != 1 {
		t.Errorf("%d loaders are on the disk", n)
	}
	return s
}

// TestBootFromDisk is the shortest way there: a machine that was given its loader makes its disk
// one that it starts from, up to the layer.
func TestBootFromDisk(t *testing.T) {
	f := fleet(t, slices.Concat(bootsFromDisk, leanSite)...)
	number := f.publishLoader(t)
	o := f.byHand(t, machine.Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: uuidOfDisk, Disk: filepath.Join(f.Dir, "state.raw")})
	sh(t, `truncate -s 2300M "$1"`, o.Disk)
	m, s := f.arrives(t, o)
	says(t, s, fmt.Sprintf("this machine's disk starts loader %d", number))
	shutDown(t, m, s)
	m = f.start(t, machine.Options{Name: o.Name, MAC: o.MAC, UUID: o.UUID, Disk: o.Disk, UEFI: filepath.Join(f.Dir, "alpha.vars"), Forwards: o.Forwards})
	for _, said := range []string{"caisson: state disk /dev/vda1", "caisson: overlay of node alpha, generation 1", "caisson: entering the layer"} {
		waitFor(t, m, 0, said)
	}
}

// TestLongInstall installs by hand on a disk that somebody used, over what is on it, and starts
// from it.
func TestLongInstall(t *testing.T) {
	require.Long(t)
	require.Tool(t, "sfdisk", "mkfs.vfat")
	f := fleet(t, "      - name: tree\n", "      - name: tree\n      - name: e2fsprogs\n      - name: systemd-boot-efi\n")
	f.installs(t, f.medium("alpha", "52:54:00:00:00:0a"))
}

// installs is the way of one from a CD onto a disk that somebody used, by hand.
func (f *Fleet) installs(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	number := f.publishLoader(t, more...)
	o.UUID, o.Disk = uuidOfDisk, filepath.Join(f.Dir, "used.raw")
	sh(t, `truncate -s 2300M "$1"; printf 'label: dos\n2048,100M\n' | sfdisk -q "$1"; mkfs.vfat -F 16 --offset 2048 "$1" 102400 >/dev/null`, o.Disk)
	o.CD = f.image(t, "boot.iso", more...)
	m, s := f.arrives(t, o)
	said := run(t, s, "sudo caisson-agent install --disk /dev/vda --yes 2>&1 || true")
	for _, want := range []string{"/dev/vda 2.4 GB", "a partition table or boot sector", "/dev/vda1 104.9 MB: a FAT file system", "it is not empty", "--wipe erases what is on it"} {
		if !strings.Contains(said, want) {
			t.Errorf("install says %q, want %q", said, want)
		}
	}
	if said := run(t, s, "sudo caisson-agent install --disk /dev/vda --wipe </dev/null 2>&1 || true"); !strings.Contains(said, "--yes does it without asking") {
		t.Errorf("nobody was asked: %q", said)
	}
	if said := run(t, s, "sudo caisson-agent install --disk /dev/vda --wipe --yes"); !strings.Contains(said, fmt.Sprintf("/dev/vda starts loader %d", number)) {
		t.Errorf("install says %q", said)
	}
	shutDown(t, m, s)
	o.CD = ""
	m, s = f.arrives(t, o)
	if !strings.Contains(m.Console.String(), "caisson: state disk /dev/vda1") {
		t.Error("it did not start with the disk's state")
	}
	return s
}

// disk is a node that has started from its own disk, and run well; its power is cut.
func (f *Fleet) disk(t *testing.T, more ...string) machine.Options {
	t.Helper()
	return f.ranFrom(t, f.medium("alpha", "52:54:00:00:00:0a"), more...)
}

func (f *Fleet) ranFrom(t *testing.T, o machine.Options, more ...string) machine.Options {
	t.Helper()
	o.UUID, o.Disk = uuidOfDisk, f.image(t, "boot.raw", more...)
	m, s := f.arrives(t, o)
	run(t, s, "sync")
	m.PowerCut()
	return o
}

// TestLongLoaderUpdate follows a disk's loader to a newer one: it comes on trial, and a boot that is
// good ends the trial.
func TestLongLoaderUpdate(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir")
	f := fleet(t, withUEFI...)
	f.update(t, f.medium("alpha", "52:54:00:00:00:0a"))
}

// update is the way of one whose disk is given a newer loader.
func (f *Fleet) update(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	o = f.ranFrom(t, o, more...)
	m, s := f.arrives(t, o)
	number := f.publishLoader(t, append(more, "--kernel-arg", "caisson.trial=300")...)
	run(t, s, "sudo caisson-agent sync")
	says(t, s, fmt.Sprintf("loader %d is on this machine's disk, on trial", number))
	shutDown(t, m, s)
	if on := loaders(t, o.Disk); !strings.Contains(on, fmt.Sprintf("caisson-%d-", number)) || !strings.Contains(on, "+3.efi") || strings.Count(on, "caisson-") != 2 {
		t.Errorf("on the disk are\n%s", on)
	}
	m, s = f.arrives(t, o)
	if console := m.Console.String(); !strings.Contains(console, "caisson: this loader is on trial: caisson-"+fmt.Sprint(number)) {
		t.Error("it did not start from the newer loader")
	}
	says(t, s, fmt.Sprintf("loader %d has proved itself", number))
	shutDown(t, m, s)
	if on := loaders(t, o.Disk); strings.Contains(on, "+") || strings.Count(on, "caisson-") != 2 {
		t.Errorf("on the disk are\n%s", on)
	}
	return nil
}

// onESP runs a script on the partition that firmware starts from, $1.
func onESP(t *testing.T, o machine.Options, script string, args ...string) {
	t.Helper()
	sh(t, script, append([]string{o.Disk + "@@1M"}, args...)...)
}

// putLoader puts a loader on trial beside those of a disk, as the agent does.
func putLoader(t *testing.T, o machine.Options, file string, number int64) {
	t.Helper()
	onESP(t, o, `mcopy -i "$1" "$2" "::/EFI/Linux/caisson-$3-$(sha256sum "$2" | cut -c-12)+3.efi"`, file, fmt.Sprint(number))
}

// TestLongLoaderFaults breaks what a disk starts, each way on a copy of one that ran well: the
// loader before it comes up each time.
func TestLongLoaderFaults(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "mcopy", "mtype")
	f := fleet(t, withUEFI...)
	o := f.disk(t)
	const old = "caisson: loader of fleet quickstart"
	const next = 4_000_000_000 // a number above that of any date
	program := func(name string, more ...string) string { return f.image(t, name+".efi", more...) }
	t.Run("panics", func(t *testing.T) {
		o := copyOf(t, o, "panics")
		putLoader(t, o, program("panics", "--kernel-arg", "rdinit=/none", "--kernel-arg", "panic=1"), next)
		m := f.start(t, o)
		waitFor(t, m, 0, old)
		if n := strings.Count(m.Console.String(), "Kernel panic"); n != 3 {
			t.Errorf("it was started %d times", n)
		}
		if on := loaders(t, o.Disk); !strings.Contains(on, "+0-3.efi") {
			t.Errorf("on the disk are\n%s", on)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		o := copyOf(t, o, "hangs")
		putLoader(t, o, program("hangs", "--kernel-arg", "rdinit=/none", "--kernel-arg", "panic=0"), next)
		for range 3 {
			m := f.start(t, o)
			waitFor(t, m, 0, "Kernel panic") // and there it stays, as one that hangs before its watchdog does
			m.PowerCut()
		}
		waitFor(t, f.start(t, o), 0, old)
	})
	t.Run("finds no network", func(t *testing.T) {
		o := copyOf(t, o, "offline")
		putLoader(t, o, program("offline", "--registry", "10.0.2.99:5000/demo"), next)
		m := f.start(t, o)
		waitFor(t, m, 0, "caisson: this loader is on trial")
		waitFor(t, m, 0, "caisson: booting the last good overlay, generation 1") // which is a decision
		s := f.login(t, m)
		says(t, s, fmt.Sprintf("loader %d has proved itself", next))
	})
	t.Run("refuses", func(t *testing.T) {
		o := copyOf(t, o, "refuses")
		f.must(t, "keys", "generate", "keys/stranger")
		sh(t, `sed 's|^registry: .*|&\ntrust: {keys: {operator: keys/stranger.pub}}|' "$1/site.yaml" > "$1/other.yaml"; grep -q stranger "$1/other.yaml"`, f.Dir)
		f.must(t, "image", "other.yaml", "--from", f.To(), "--out", "refuses.efi", "--registry", f.guest(), "--registry-plain-http", "--kernel-arg", "caisson.trial=20")
		putLoader(t, o, filepath.Join(f.Dir, "refuses.efi"), next)
		m := f.start(t, o)
		for at := 0; strings.Count(m.Console.String(), "this loader is on trial and has found nothing to boot") < 3; at = m.Console.Len() {
			waitFor(t, m, at, "this loader is on trial and has found nothing to boot")
		}
		waitFor(t, m, m.Console.Len(), "caisson: overlay of node alpha, generation 1")
	})
	t.Run("variables lost", func(t *testing.T) {
		o := copyOf(t, o, "variables")
		o.UEFI = filepath.Join(f.Dir, "lost.vars")
		waitFor(t, f.start(t, o), 0, "caisson: state disk /dev/vda1")
	})
	t.Run("none can be loaded", func(t *testing.T) {
		o := copyOf(t, o, "garbage")
		onESP(t, o, `for f in $(mdir -b -i "$1" ::/EFI/Linux); do head -c 100000 /dev/urandom > "$2"; mcopy -o -i "$1" "$2" "$f"; done`, filepath.Join(f.Dir, "garbage"))
		waitFor(t, f.start(t, o), 0, "PXE") // the firmware's next entry
	})
	t.Run("another machine", func(t *testing.T) {
		o := copyOf(t, o, "moved")
		o.MAC, o.UUID = "52:54:00:00:00:0b", "4c4c4544-0000-2010-8020-80c04f202021"
		m := f.start(t, o)
		waitFor(t, m, 0, "caisson: state disk /dev/vda1 is not used")
		waitFor(t, m, 0, "caisson: overlay of node beta, generation 1")
	})
	t.Run("would go back", func(t *testing.T) {
		o := copyOf(t, o, "back")
		number := f.publishLoader(t)
		onESP(t, o, `f=$(mdir -b -i "$1" ::/EFI/Linux | tail -n1); mcopy -i "$1" "$f" "$2"; mcopy -i "$1" "$2" "::/EFI/Linux/caisson-$3-$(sha256sum "$2" | cut -c-12).efi"`, filepath.Join(f.Dir, "same.efi"), fmt.Sprint(next))
		s := f.login(t, f.start(t, o))
		want := fmt.Sprintf("fleet:current names loader %d, the disk has %d, and loaders never go back", number, next)
		says(t, s, want)
		if st := status(t, s); st.Health != "ok" { // it is ahead, and well
			t.Errorf("%+v", st)
		}
	})
}
