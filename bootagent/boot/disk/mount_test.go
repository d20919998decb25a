// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// device makes a loop device with an ext4 file system, read-only if asked for, in a
// mount namespace of this test's own.
func device(t *testing.T, readOnly bool) (name, image string) {
	t.Helper()
	if readOnly {
		return loop(t, 16<<20, "mkfs.ext4", "--read-only")
	}
	return loop(t, 16<<20, "mkfs.ext4")
}

// loop makes a loop device of a file, with a file system if a program for that is given.
func loop(t *testing.T, size int64, mkfs string, options ...string) (name, image string) {
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
	image = filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if mkfs != "" {
		command(t, mkfs, "-q", image)
	}
	name = strings.TrimSpace(command(t, "losetup", append(options, "--find", "--show", image)...))
	t.Cleanup(func() { command(t, "losetup", "--detach", name) })
	return name, image
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestAWritableDisk(t *testing.T) {
	dev, _ := device(t, false)
	at := filepath.Join(t.TempDir(), "state")
	f := &Finder{Mounter: kernel{}}
	readOnly, err := f.mount(dev, at)
	if err != nil || readOnly != nil {
		t.Fatalf("%v, %v", readOnly, err)
	}
	if err := os.WriteFile(filepath.Join(at, "kept"), []byte("kept"), 0o600); err != nil {
		t.Error(err)
	}
	if features := command(t, "dumpe2fs", "-h", dev); !strings.Contains(features, "needs_recovery") {
		t.Error("a mounted disk is as after a shutdown: this shows nothing")
	}
	if err := Settle(at); err != nil {
		t.Fatal(err)
	}
	if features := command(t, "dumpe2fs", "-h", dev); strings.Contains(features, "needs_recovery") || !strings.Contains(features, "Filesystem state:         clean") {
		t.Errorf("not as after a shutdown:\n%s", features)
	}
	if err := f.Mounter.Unmount(at); err != nil {
		t.Fatal(err)
	}
	// The same content is seen by a look, which writes nothing.
	if err := f.Mounter.Mount(dev, at, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "more"), nil, 0o600); err == nil {
		t.Error("a look can write")
	}
	if _, err := os.Stat(filepath.Join(at, "kept")); err != nil {
		t.Error(err)
	}
	if err := f.Mounter.Unmount(at); err != nil {
		t.Fatal(err)
	}
}

// A disk that can only be read is used; what is written goes to memory.
func TestAReadOnlyDisk(t *testing.T) {
	dev, _ := device(t, true)
	at := filepath.Join(t.TempDir(), "state")
	f := &Finder{Mounter: kernel{}}
	readOnly, err := f.mount(dev, at)
	if err != nil || readOnly == nil {
		t.Fatalf("%v, %v", readOnly, err)
	}
	if _, err := os.Stat(filepath.Join(at, "lost+found")); err != nil {
		t.Errorf("what the disk has: %v", err)
	}
	if err := os.WriteFile(filepath.Join(at, "new"), nil, 0o600); err != nil {
		t.Errorf("a boot cannot write its state: %v", err)
	}
	for range 2 { // the memory, and the disk below it
		if err := f.Mounter.Unmount(at); err != nil {
			t.Fatal(err)
		}
	}
}

// A file system that its kernel shut down, as it does after a write that failed, is read again.
func TestAgain(t *testing.T) {
	dev, _ := device(t, false)
	at := filepath.Join(t.TempDir(), "state")
	f := &Finder{Mounter: kernel{}}
	if readOnly, err := f.mount(dev, at); err != nil || readOnly != nil {
		t.Fatalf("%v, %v", readOnly, err)
	}
	kept := filepath.Join(at, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	shutDown(t, at)
	if _, err := os.ReadFile(kept); err == nil {
		t.Fatal("it can be read: this shows nothing")
	}
	if err := f.Again(dev, at); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.WriteFile(filepath.Join(at, "new"), nil, 0o600); err != nil {
		t.Errorf("a boot cannot write its state: %v", err)
	}
	for range 2 {
		if err := f.Mounter.Unmount(at); err != nil {
			t.Fatal(err)
		}
	}
}

// shutDown does to a mounted ext4 what a journal that cannot be written does.
func shutDown(t *testing.T, at string) {
	t.Helper()
	const shutdown, withoutLog = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	d, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() // nothing was written to it
	if err := unix.IoctlSetPointerInt(int(d.Fd()), shutdown, withoutLog); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedSuperblock(t *testing.T) {
	dev, _ := device(t, false)
	d, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt(make([]byte, 8192), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	f := &Finder{Mounter: kernel{}}
	if readOnly, err := f.mount(dev, filepath.Join(t.TempDir(), "state")); err == nil {
		t.Errorf("it was mounted: %v", readOnly)
	} else if err := unusable(err); !strings.Contains(err.Error(), "fsck") {
		t.Errorf("no remedy: %v", err)
	}
}
