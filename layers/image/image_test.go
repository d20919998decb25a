// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/test/require"
)

const epoch = 1_700_000_000

// squashfs returns the digest of the tree's image.
func squashfs(t *testing.T, tree string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image")
	if err := Squashfs(context.Background(), tree, out, Options{Level: LevelFast, Epoch: epoch}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return digest.Of(data)
}

// plant writes the same tree whatever the order and the clock.
func plant(t *testing.T, order []int, when time.Time) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, i := range order {
		dir := filepath.Join(tree, fmt.Sprintf("d%d", i%7))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte{byte(i)}, 1000*i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(tree, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(name, when, when)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestSameTreeSameImage(t *testing.T) {
	require.Tool(t, "mksquashfs")
	var order []int
	for i := range 60 {
		order = append(order, i)
	}
	first := squashfs(t, plant(t, order, time.Unix(epoch+1000, 0)))
	for range 3 {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		if again := squashfs(t, plant(t, order, time.Unix(epoch+rand.Int64N(1e6), 0))); again != first {
			t.Errorf("in order %v: %s, want %s", order, again, first)
		}
	}
	if older := squashfs(t, plant(t, order, time.Unix(epoch-1000, 0))); older == first {
		t.Error("dates before the epoch were flattened: they make compiled Python files stale")
	}
}

func TestSquashfsFails(t *testing.T) {
	require.Tool(t, "mksquashfs")
	out := filepath.Join(t.TempDir(), "image")
	if err := Squashfs(context.Background(), "/none/at/all", out, Options{Level: 3}); err == nil {
		t.Error("an image of nothing")
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a failed image was left behind")
	}
}

// Two captures of the same changes are one image, and it hides what was removed.
func TestCapture(t *testing.T) {
	require.Root(t)
	require.Tool(t, "mksquashfs")
	capture := func() (upper, sum string) {
		dir := t.TempDir()
		for _, d := range []string{"lower/a", "lower/b/c", "upper", "work", "root"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{"lower/a/gone", "lower/b/old", "lower/changed"} {
			if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		at := filepath.Join(dir, "root")
		options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,redirect_dir=off,metacopy=off,index=off,xino=off", dir)
		if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
			require.Missing(t, "root", "overlayfs cannot be mounted: "+err.Error())
		}
		defer unix.Unmount(at, unix.MNT_DETACH) // a lazy unmount: the mount is this test's alone
		for _, do := range []func() error{
			func() error { return os.Remove(filepath.Join(at, "a/gone")) },
			func() error { return os.RemoveAll(filepath.Join(at, "b")) },
			func() error { return os.MkdirAll(filepath.Join(at, "b/new"), 0o755) },
			func() error { return os.WriteFile(filepath.Join(at, "changed"), []byte("new"), 0o600) },
		} {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		upper = filepath.Join(dir, "upper")
		if err := Clean(upper); err != nil {
			t.Fatal(err)
		}
		return upper, squashfs(t, upper)
	}
	upper, first := capture()
	if _, second := capture(); second != first {
		t.Errorf("two captures: %+v and %+v", first, second)
	}
	all := map[string][]string{}
	err := filepath.WalkDir(upper, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		found, err := xattrs(name)
		if len(found) > 0 {
			all[name[len(upper):]] = found
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 0 {
		t.Errorf("attributes left: %v", all)
	}
	if info, err := os.Lstat(filepath.Join(upper, "a/gone")); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("no whiteout of what was removed: %v, %v", info, err)
	}
}

func TestSplitLinks(t *testing.T) {
	lower, upper := t.TempDir(), t.TempDir()
	for _, name := range []string{"one", "two", "alone"} {
		if err := os.WriteFile(filepath.Join(lower, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(upper, name), []byte("y"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for tree, links := range map[string][]string{lower: {"one", "two"}, upper: {"two"}} {
		for _, name := range links {
			if err := os.Link(filepath.Join(tree, name), filepath.Join(tree, name+"-link")); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := SplitLinks(upper, []string{lower})
	if err != nil || !slices.Equal(got, []string{"/one"}) {
		t.Errorf("got %v, %v; want /one, whose other name stays old", got, err)
	}
}

// What a process has read of a tree is told while it runs, and never more than
// there is.
func TestWatch(t *testing.T) {
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "file"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	told := make(chan [2]int64, 100)
	stop := watch(os.Getpid(), tree, func(read, of, _ int64) { told <- [2]int64{read, of} })
	if _, err := os.ReadFile(filepath.Join(tree, "file")); err != nil { // this process plays mksquashfs
		t.Fatal(err)
	}
	select {
	case got := <-told:
		if got != [2]int64{1 << 20, 1 << 20} {
			t.Errorf("told %v", got)
		}
	case <-time.After(5 * time.Minute):
		t.Error("nothing was told")
	}
	stop()
	if n, _, ok := bytesMoved(-1); ok {
		t.Errorf("no process has read %d bytes", n)
	}
}
