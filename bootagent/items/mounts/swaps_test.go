// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// space makes a file of swap space, as mkswap(8) does: small, as every test of this
// machine shares its swap.
func space(t *testing.T, name string) string {
	t.Helper()
	page := os.Getpagesize()
	data := make([]byte, 64*page)
	binary.NativeEndian.PutUint32(data[1024:], 1)  // version
	binary.NativeEndian.PutUint32(data[1028:], 63) // last page
	copy(data[page-10:], "SWAPSPACE2")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unused(name) }) // most tests leave it out of use
	return name
}

// unused takes space out of use.
func unused(name string) error {
	return (&Swaps{patience: time.Minute}).off(context.Background(), name)
}

// swapPlace makes a directory in which files can be swap space: among the temporary files, or
// on the disk where those are in a tmpfs, which has none.
func swapPlace(t *testing.T) string {
	t.Helper()
	require.Root(t)
	disk, err := os.MkdirTemp("/var/tmp", "swaps-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(disk) }) // a temporary file at worst
	for _, dir := range []string{t.TempDir(), disk} {
		probe := space(t, filepath.Join(dir, "probe"))
		if err = swapOn(probe, nil, ""); err == nil {
			if err := errors.Join(unused(probe), os.Remove(probe)); err != nil {
				t.Fatal(err)
			}
			return dir
		}
	}
	require.Missing(t, "swap", fmt.Sprintf("no file of %s can be swap space: %v", disk, err))
	return ""
}

// inUse returns the part of the machine's swap space that lies in dir.
func inUse(t *testing.T, dir string) string {
	t.Helper()
	all, err := (&Swaps{proc: "/proc"}).read()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, u := range all {
		if name, ok := strings.CutPrefix(u.Path, dir+"/"); ok {
			lines = append(lines, name+" "+u.String())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func priority(n int) *int { return &n }

func newSwaps(want []spec.Swap, j item.Journal) *Swaps { return NewSwaps(want, "/proc", "/dev", j) }

func TestSwapsConformance(t *testing.T) {
	for name, world := range map[string]func(t *testing.T, dir string) []spec.Swap{
		"files": func(t *testing.T, dir string) []spec.Swap {
			return []spec.Swap{{Device: space(t, dir+"/a"), Priority: priority(7)}, {Device: space(t, dir+"/b b"), Discard: "once"}}
		},
		"priority of what another uses": func(t *testing.T, dir string) []spec.Swap {
			w := spec.Swap{Device: space(t, dir+"/had"), Priority: priority(9)}
			if err := swapOn(w.Device, priority(3), ""); err != nil {
				t.Fatal(err)
			}
			return []spec.Swap{w}
		},
	} {
		t.Run(name, func(t *testing.T) {
			itemtest.Run(t, func(t *testing.T) itemtest.World {
				dir := swapPlace(t)
				want := world(t, dir)
				return itemtest.World{
					Wanted:   func(j item.Journal) item.Item { return newSwaps(want, j) },
					Empty:    func(j item.Journal) item.Item { return newSwaps(nil, j) },
					Snapshot: func() string { return inUse(t, dir) },
				}
			})
		})
	}
}

// A changed config is a changed use, and the first original is kept.
func TestChanges(t *testing.T) {
	dir := swapPlace(t)
	a := space(t, dir+"/a")
	j := itemtest.Journal(t, t.TempDir())
	for _, step := range []struct {
		want spec.Swap
		use  string
	}{
		{spec.Swap{Device: a}, "a swap"},
		{spec.Swap{Device: a, Priority: priority(5)}, "a swap priority 5"},
		{spec.Swap{Device: a, Priority: priority(0)}, "a swap priority 0"},
		{spec.Swap{Device: a, Priority: priority(0), Discard: "pages"}, "a swap priority 0"},
		{spec.Swap{Device: a}, "a swap"},
	} {
		it := newSwaps([]spec.Swap{step.want}, j)
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) != 1 {
			t.Fatalf("%+v: %+v, %v", step.want, drift, err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
		if drift, err := it.Check(t.Context()); err != nil || len(drift) > 0 {
			t.Fatalf("after apply: %+v, %v", drift, err)
		}
		if got := inUse(t, dir); got != step.use {
			t.Errorf("%+v: %s", step.want, got)
		}
	}
	if err := newSwaps(nil, j).Restore(t.Context(), j.Entries(SwapsName)); err != nil || inUse(t, dir) != "" {
		t.Errorf("after restore: %s, %v", inUse(t, dir), err)
	}
}

// What cannot be used is said before or by the kernel, and nothing is left of it.
func TestSwapsRefusals(t *testing.T) {
	dir := swapPlace(t)
	readable := space(t, dir+"/readable")
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, make([]byte, 1<<18), 0o600); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, "theirs")
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(readable, 0o644), os.Symlink(space(t, dir+"/good"), theirs+"/link"), os.Lchown(theirs+"/link", 1000, 1000), os.Chown(theirs, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ device, action, reason string }{
		{dir + "/none", spec.ActionDefer, "not there yet"},
		{"LABEL=no-such-label", spec.ActionDefer, "not there yet"},
		{readable, spec.ActionRefuse, "not root's alone"},
		{theirs, spec.ActionRefuse, "neither a disk nor a file"},
		{theirs + "/link", spec.ActionRefuse, "link"},
		{"relative", spec.ActionRefuse, "not the path of a disk or a file"},
	} {
		drift, err := newSwaps([]spec.Swap{{Device: c.device}}, itemtest.Journal(t, t.TempDir())).Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != c.action || !strings.Contains(drift[0].Reason, c.reason) {
			t.Errorf("%s: %+v, %v; want %s: %s", c.device, drift, err, c.action, c.reason)
		}
	}
	j := itemtest.Journal(t, t.TempDir())
	it := newSwaps([]spec.Swap{{Device: plain}}, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err == nil || !strings.Contains(err.Error(), "no swap signature") || len(j.Entries(SwapsName)) > 0 {
		t.Errorf("a file without swap space: %v, %+v", err, j.Entries(SwapsName))
	}
	twice := newSwaps([]spec.Swap{{Device: dir + "/good"}, {Device: dir + "/hard"}}, j)
	if err := os.Link(dir+"/good", dir+"/hard"); err != nil {
		t.Fatal(err)
	}
	if drift, err := twice.Check(t.Context()); err != nil || len(drift) != 2 {
		t.Errorf("one file by two names: %+v, %v", drift, err)
	}
}

func TestParse(t *testing.T) {
	got, err := parseSwaps("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/vdb                                partition\t1048572\t\t0\t\t-2\n/srv/a\\040b                             file\t252\t\t0\t\t10\n")
	if err != nil || len(got) != 2 || got[0] != (usedSwap{"/dev/vdb", -2}) || got[1] != (usedSwap{"/srv/a b", 10}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"Filename\n/dev/vdb partition 1 2\n", "Filename\n/dev/vdb partition 1 2 x\n"} {
		if got, err := parseSwaps(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
