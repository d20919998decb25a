// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `22 1 0:21 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a,upperdir=/b\040c
36 22 98:0 /sub /mnt\040two rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue
37 36 0:30 / /mnt\040two rw - tmpfs tmpfs rw
`

func TestParseTable(t *testing.T) {
	all, err := parseTable([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := mounted{id: 36, dev: "98:0", point: "/mnt two", options: []string{"rw", "noatime"},
		propagation: []string{"master:1", "propagate_from:2"}, fstype: "ext3", source: "/dev/root", super: []string{"rw", "errors=continue"}}
	if diff := cmp.Diff(want, all[1], cmp.AllowUnexported(mounted{})); diff != "" {
		t.Fatal(diff)
	}
	if top, ok := all.at("/mnt two"); !ok || top.fstype != "tmpfs" {
		t.Fatalf("on top is %+v, want the later one", top)
	}
	if on, _ := all.holding("/mnt two/x"); on.fstype != "tmpfs" {
		t.Fatalf("/mnt two/x lies on %+v", on)
	}
	if on, _ := all.holding("/mnt twofold"); on.fstype != "overlay" {
		t.Fatalf("/mnt twofold lies on %+v", on)
	}
}

// An overlay of hundreds of layers, as a container engine can make one, has a long line: it
// hides no other mount.
func TestALongLine(t *testing.T) {
	layers := strings.Repeat(":/var/lib/containers/storage/overlay/"+strings.Repeat("x", 200), 500)
	all, err := parseTable([]byte(sample + "38 22 0:31 / /run/c rw - overlay overlay ro,lowerdir=" + layers + "\n" + sample))
	if err != nil || len(all) != 7 {
		t.Fatalf("%d mounts, %v", len(all), err)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte(sample))
	if own, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		f.Add(own)
	}
	f.Add([]byte("1 2 3 4 5 6 - 7 8 9\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseTable(data)
		if err != nil {
			return
		}
		for _, m := range all {
			if _, ok := all.at(m.point); !ok {
				t.Fatalf("nothing is found at %q, the point of %+v", m.point, m)
			}
			flagsOf(m)
			for _, word := range m.super {
				if !shows(m, word) {
					t.Fatalf("%+v does not show its own option %q", m, word)
				}
			}
		}
	})
}

func TestShownInOtherWords(t *testing.T) {
	for _, c := range []struct {
		want, shown string
		so          bool
	}{
		{"vers=4", "vers=4.2", true}, {"vers=4.2", "vers=4.2", true}, {"vers=3", "vers=4.2", false}, {"vers=4", "vers=40", false},
		{"compress=zstd", "compress=zstd:3", true}, {"compress=zstd:9", "compress=zstd:3", false},
		{"subvol=home", "subvol=/home", true}, {"subvol=home", "subvol=/root", false},
		{"rsize=1048577", "rsize=1048576", true}, {"rsize=4096", "rsize=1048576", false},
		{"size=1m", "size=1024k", true}, {"mode=0750", "mode=750", true},
	} {
		if so := shows(mounted{fstype: "x", super: []string{"rw", c.shown}}, c.want); so != c.so {
			t.Errorf("%s, shown as %s: %v", c.want, c.shown, so)
		}
	}
}
