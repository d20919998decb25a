// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/test/require"
)

// smallerThanItSays mounts a disk of 64 MiB that takes some 16 of them and answers the rest
// with I/O errors: a loop device on a sparse file whose file system is full.
func smallerThanItSays(t *testing.T) (at string) {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mkfs.ext4", "losetup")
	runtime.LockOSThread() // the namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	memory, at := t.TempDir(), t.TempDir()
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "size=16m"); err != nil {
		require.Missing(t, "root", "no tmpfs here: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(memory, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	image := filepath.Join(memory, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "nodiscard", image)
	device := run("losetup", "--find", "--show", image)
	t.Cleanup(func() { run("losetup", "--detach", device) })
	if err := unix.Mount(device, at, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // as above
	return at
}

// What a disk did not take is not resumed from what is left of it in memory, which reads as
// if it were there: the next try begins from the start.
func TestWhatTheDiskDidNotTake(t *testing.T) {
	store, err := OpenStore(filepath.Join(smallerThanItSays(t), "store"))
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB
	name := digest.Of(content)
	if err := os.WriteFile(store.Partial(name), content, 0o600); err != nil {
		t.Fatalf("the disk was to take it, and to lose it: %v", err)
	}
	if err := store.Commit(name); !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOSPC) { // which a loop device says instead
		t.Fatalf("the disk takes 16 MiB, and 32 are on it: %v", err)
	}
	if err := store.Commit(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the disk did not take counts as taken: %v", err)
	}
	if store.Has(name, int64(len(content))) {
		t.Error("the blob is there")
	}
}
