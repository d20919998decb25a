// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// killBuilders kills builders of an order at random points, with and without warning, one
// after another in one cache: they leave neither a mount nor a process. The next build
// of the cache is the caller's, for it has to work.
func killBuilders(t *testing.T, o order) {
	file := o.write(t)
	ownMounts(t)
	mounts, temporary, cache := readMounts(t), t.TempDir(), o.Options.CacheDir
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		after := time.Duration(rand.Int64N(int64(9 * time.Second)))
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), inNamespace+"="+file, "TMPDIR="+temporary)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		t.Logf("%v after %v", signal, after)
		if left := processesBelow(cache, 5*time.Minute); len(left) > 0 {
			t.Fatalf("%v after %v left processes: %v", signal, after, left)
		}
		if left, _ := filepath.Glob(filepath.Join(temporary, "mmdebstrap.*")); len(left) > 0 {
			t.Fatalf("%v after %v left %v", signal, after, left)
		}
		if left := leftMounts(mounts, readMounts(t)); len(left) > 0 {
			t.Fatalf("%v after %v left mounts:\n%s", signal, after, strings.Join(left, "\n"))
		}
	}
}

// ownMounts gives the test, and the programs that it starts, mounts of their own: tests of
// other packages, which run meanwhile, mount and unmount.
func ownMounts(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // the namespace ends with the thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

func readMounts(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// leftMounts returns those of after that were not there before. Some may be gone: the
// kernel takes one away from all namespaces when another test removes the directory.
func leftMounts(before, after []string) []string {
	was := map[string]int{}
	for _, line := range before {
		was[line]++
	}
	return slices.DeleteFunc(after, func(line string) bool {
		was[line]--
		return was[line] >= 0
	})
}

// processesBelow lists processes whose command line or root names dir. The
// kernel needs a moment to end those of a namespace: it gets until patience.
func processesBelow(dir string, patience time.Duration) []string {
	end := time.Now().Add(patience)
	for {
		var found []string
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range all {
			cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
			at, _ := os.Readlink(filepath.Join(p, "root"))
			if strings.Contains(string(cmdline), dir) || strings.HasPrefix(at, dir) {
				found = append(found, filepath.Base(p)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(end) {
			return found
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestFull builds where there is no room: the error says so, nothing half-done
// is left, and the same cache works once there is room.
func TestFull(t *testing.T) {
	o := testOptions(t)
	dir := t.TempDir()
	if err := unix.Mount("caisson-test", dir, "tmpfs", 0, "size=40m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	o.CacheDir = dir
	if err := os.MkdirAll(filepath.Join(dir, "debs"), 0o755); err != nil {
		t.Fatal(err)
	}
	recipe := testRecipe()
	ledger, err := Settle([]spec.Recipe{recipe}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Ledger, o.Debs = ledger, ""
	_, err = Build(context.Background(), recipe, "default", "1", o)
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "no space left on device") {
		t.Fatalf("got %v, want that there is no space left", err)
	}
	for _, below := range []string{"steps/*", "tmp/*", "debs/partial-*"} {
		if left, _ := filepath.Glob(filepath.Join(dir, below)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}
