// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded is what a node with a state disk said of its mounts and block devices: as it had
// booted, and after a soft-reboot there and one back to the same layer.
func recorded(t *testing.T, moment string) (all []mount, blocks string) {
	t.Helper()
	table, err := os.ReadFile("testdata/softreboot/" + moment + ".mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile("testdata/softreboot/" + moment + ".devices")
	if err != nil {
		t.Fatal(err)
	}
	blocks = t.TempDir()
	for line := range strings.Lines(string(lines)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		file := filepath.Join(blocks, strings.TrimPrefix(name, "/sys/block/"))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return parseMounts(string(table)), blocks
}

// The way there and back by two soft-reboots leaves mounts and devices that are the same, however
// the kernel numbers them and from wherever the root was stacked.
func TestSoftReboot(t *testing.T) {
	take := func(moment string) Picture {
		all, blocks := recorded(t, moment)
		p, d := Picture{}, readDevices(blocks)
		p.devices(d, blocks)
		p.mounts(all, d)
		if len(all) < 20 || len(d) < 5 {
			t.Fatalf("%s: %d mounts, %d devices", moment, len(all), len(d))
		}
		return p
	}
	before, after := take("before"), take("after")
	if left := Compare(before, after); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for name, text := range before {
		if strings.Contains(name+text, "/dev/loop") || strings.Contains(name+text, "/dev/dm-") || strings.Contains(text, "a device") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// What the kernel takes from free memory at a boot is no difference between two, unless the site says it.
func TestSizesOfMemory(t *testing.T) {
	at := func(id, size, other string) Picture {
		return Picture{boot: id, "mount /dev": "devtmpfs devtmpfs / rw rw,size=" + size + ",nr_inodes=1,mode=755", "mount /tmp": "tmpfs tmpfs / rw rw" + other, "mount /srv": "ext4 /dev/a / rw rw,size=" + size}
	}
	for _, row := range []struct {
		before, after Picture
		set           []string
		want          string
	}{
		{at("a", "721784k", ""), at("b", "721788k", ",size=752568k"), nil, "/srv"},
		{at("a", "721784k", ""), at("b", "721788k", ",size=752568k"), []string{"mount /tmp"}, "/srv /tmp"},
		{at("a", "1k", ",size=2k"), at("a", "1k", ",size=3k"), nil, "/tmp"},
		{at("a", "1k", ",size=2k"), at("b", "1k", ",size=2k,mode=700"), nil, "/tmp"},
	} {
		var keys []string
		for _, d := range Compare(row.before, row.after, row.set...) {
			if d.Key != "kernel.random.boot_id" {
				keys = append(keys, d.Key)
			}
		}
		if got := strings.Join(keys, " "); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}

// The files of the root are looked for in the same places in both, but for the parts of the root.
func TestWritten(t *testing.T) {
	for moment, upper := range map[string]string{"before": "/run/caisson/upper", "after": "/etc/caisson/upper"} {
		all, _ := recorded(t, moment)
		places := slices.DeleteFunc(written(all), func(at string) bool { return Alone("file "+at) || Alone("mount "+at) })
		slices.Sort(places)
		if want := []string{"/", "/run", "/srv/scratch", "/var/lib/caisson"}; !slices.Equal(places, want) {
			t.Errorf("%s: %q, want %q", moment, places, want)
		}
		if !Alone("file " + upper + "/upper/etc/hosts") {
			t.Errorf("%s: what is written to the root is named twice", moment)
		}
	}
}

// A numbered device has the name of its content, another device its own, and a loop device without a file none.
func TestDevices(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"dm-0/dm/name": "caisson-4bf5-loop2\n", "dm-1/dm/name": "vg-data\n", "loop2/loop/backing_file": "/store/sha256/4bf5\n",
		"loop3/loop/backing_file": "/a/sha256/4bf5", "loop4/size": "0", "vda/size": "100"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := readDevices(dir)
	for got, want := range map[string]string{d.source("/dev/dm-0"): "mapped:caisson-4bf5", d.source("/dev/dm-1"): "mapped:vg-data", d.source("/dev/loop2"): "loop:sha256/4bf5",
		d.source("/dev/loop3"): "loop:sha256/4bf5 (2)", d.source("/dev/loop9"): "a device", d.source("/dev/vda1"): "/dev/vda1", d.source("tmpfs"): "tmpfs",
		d.attribute("/sys/block/dm-1/queue/scheduler"): "/sys/block/mapped:vg-data/queue/scheduler", d.attribute("/sys/block/loop4/queue/scheduler"): "",
		d.attribute("/sys/block/vda/queue/scheduler"): "/sys/block/vda/queue/scheduler", d.attribute("/sys/module/loop/parameters/max_loop"): "/sys/module/loop/parameters/max_loop"} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
