// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/test/require"
)

// checkedImage is an image with a large file in a store, and its tree. It takes a kernel
// with device-mapper, which a container's host may lack; test/vm has one.
func checkedImage(t *testing.T) (name string, image Image) {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mksquashfs")
	if err := CanCheck(); err != nil {
		require.Missing(t, "verity", err.Error())
	}
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/root", 0o755), os.WriteFile(dir+"/root/large", bytes.Repeat([]byte("0123456789abcdef"), 1<<17), 0o644)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mksquashfs", dir+"/root", dir+"/image", "-quiet", "-no-progress", "-noD", "-noF").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(dir + "/image")
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(dir + "/store")
	if err != nil {
		t.Fatal(err)
	}
	name = digest.Of(data)
	salt, err := verity.Parse(digest.Hex(name))
	if err != nil {
		t.Fatal(err)
	}
	root, err := verity.Root(bytes.NewReader(data), int64(len(data)), salt)
	if err = errors.Join(err, s.Put(name, data), s.MakeTree(name, root)); err != nil {
		t.Fatal(err)
	}
	return name, Image{Path: s.Path(name), Type: squashfs, Tree: &Tree{Path: s.Tree(name), Root: root}}
}

// flip changes a bit in the middle of a file.
func flip(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], info.Size()/2)
	b[0] ^= 1
	if err == nil {
		_, err = f.WriteAt(b[:], info.Size()/2)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLongCheckedImage: what is right is read; a block that changes under the kernel's hands is
// an error, and is known of; the device goes with the mount.
func TestLongCheckedImage(t *testing.T) {
	require.Long(t)
	name, image := checkedImage(t)
	at := t.TempDir()
	if err := image.Mount(at); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(at + "/large"); err != nil || len(data) != 16<<17 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if corrupt, err := Corrupt(); err != nil || slices.Contains(corrupt, name) {
		t.Errorf("corrupt: %v, %v", corrupt, err)
	}
	flip(t, image.Path)
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil { // what the kernel has read, it forgets
		t.Fatal(err)
	}
	if _, err := os.ReadFile(at + "/large"); !errors.Is(err, unix.EIO) {
		t.Errorf("a changed block is read: %v", err)
	}
	if corrupt, err := Corrupt(); err != nil || !slices.Contains(corrupt, name) {
		t.Errorf("corrupt: %v, %v; want %s", corrupt, err, name)
	}
	if err := unmount(at); err != nil {
		t.Fatal(err)
	}
	if corrupt, err := Corrupt(); err != nil || slices.Contains(corrupt, name) {
		t.Errorf("after the mount: %v, %v", corrupt, err)
	}
}

// TestLongCheckedImageTwice: an image that is in two places is read through one device, unless
// its file was replaced or the kernel has met a wrong block in it.
func TestLongCheckedImageTwice(t *testing.T) {
	require.Long(t)
	_, image := checkedImage(t)
	mount := func() (at string, device uint64) {
		t.Helper()
		at = t.TempDir()
		if err := image.Mount(at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unmount(at) }) // the test is over
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			t.Fatal(err)
		}
		return at, st.Dev
	}
	_, first := mount()
	if _, second := mount(); second != first {
		t.Errorf("the second one is device %#x, the first %#x", second, first)
	}
	data, err := os.ReadFile(image.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(image.Path, image.Path+".old"), os.WriteFile(image.Path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	at, replaced := mount()
	if replaced == first {
		t.Error("a file that was replaced is read through the device of the one before")
	}
	if _, again := mount(); again != replaced {
		t.Errorf("the file that replaced it is device %#x, and %#x", replaced, again)
	}
	flip(t, image.Path)
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil { // what the kernel has read, it forgets
		t.Fatal(err)
	}
	if _, err := os.ReadFile(at + "/large"); !errors.Is(err, unix.EIO) {
		t.Errorf("a changed block is read: %v", err)
	}
	if err := os.WriteFile(image.Path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, mended := mount(); mended == replaced {
		t.Error("a device that has met a wrong block is used again")
	}
}

// TestLongAnImageWithAnotherRoot: it is not mounted, and can be with its own one afterwards.
func TestLongAnImageWithAnotherRoot(t *testing.T) {
	require.Long(t)
	_, image := checkedImage(t)
	for what, change := range map[string]func(*Tree){
		"another root":  func(tree *Tree) { tree.Root[3] ^= 1 },
		"no tree":       func(tree *Tree) { tree.Path = filepath.Join(t.TempDir(), "none") },
		"another image": func(tree *Tree) { tree.Path = image.Path },
	} {
		at, tree := t.TempDir(), *image.Tree
		change(&tree)
		if err := (Image{Path: image.Path, Type: squashfs, Tree: &tree}).Mount(at); err == nil {
			t.Errorf("mounted with %s", what)
			_ = unmount(at) // it should not be there
		}
	}
	at := t.TempDir()
	if err := image.Mount(at); err != nil {
		t.Fatal(err)
	}
	if err := unmount(at); err != nil {
		t.Error(err)
	}
}

// TestRecords: the kernel's lists are read to their ends and not beyond, whatever their
// offsets say.
func TestRecords(t *testing.T) {
	list := func(steps ...byte) (all []byte) {
		for i, step := range steps {
			r := make([]byte, 24)
			r[8] = step
			copy(r[12:], "name"+string(rune('a'+i)))
			all = append(all, r...)
		}
		return all
	}
	for _, c := range []struct {
		list []byte
		want []string
	}{
		{nil, nil},
		{list(24, 24, 0), []string{"namea", "nameb", "namec"}},
		{list(24, 4, 0), []string{"namea", "nameb"}},
		{list(24, 200), []string{"namea", "nameb"}},
		{make([]byte, 16), nil},
	} {
		if got := records(c.list, 8, 12); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
