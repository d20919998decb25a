// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// TestReproducible builds the same lock twice, the second time on what looks like
// another machine, see [elsewhere]. The first may be what other tests of this run
// have made; the second shares package files with it and nothing else. The clock
// differs by itself.
func TestReproducible(t *testing.T) {
	o := testOptions(t)
	recipe := testRecipe()
	recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: "python3-minimal"})
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	o.Debs = t.TempDir()
	build := func(cache string) *Result {
		t.Helper()
		o := o
		o.CacheDir = cache
		r, err := Build(t.Context(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := build(sharedCache)
	o.Lock = &first.Lock
	second := build(elsewhere(t))

	want, err := spec.Encode(first.Layer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := spec.Encode(second.Layer)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		for i := range first.Blobs {
			if i < len(second.Blobs) && first.Blobs[i].Digest != second.Blobs[i].Digest {
				t.Errorf("%s differs: %s and %s", first.Blobs[i].Title, first.Blobs[i].Digest, second.Blobs[i].Digest)
			}
		}
		t.Errorf("the second build described another layer:\n%.2000s\n%.2000s", want, got)
	}
}

// elsewhere changes all that a build could see of its machine, and returns a cache
// directory there: on another file system, which lists names in another order,
// below directories that only root can enter.
func elsewhere(t *testing.T) (cache string) {
	t.Helper()
	closed := filepath.Join(t.TempDir(), "a much", "longer")
	if err := os.MkdirAll(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("caisson-test", closed, "tmpfs", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(closed, unix.MNT_DETACH) })
	cache = filepath.Join(closed, "path")
	t.Chdir(closed)
	for _, env := range []string{"TZ=Asia/Tokyo", "LANG=tr_TR.UTF-8", "LC_ALL=tr_TR.UTF-8", "LANGUAGE=tr", "USER=somebody", "LOGNAME=somebody", "SHELL=/bin/false",
		"HOME=/nonexistent", "TMPDIR=" + closed, "SOURCE_DATE_EPOCH=1", "DEB_BUILD_OPTIONS=nostrip", "DPKG_ROOT=/x", "APT_CONFIG=/nonexistent", "PERL5OPT=-w"} {
		key, value, _ := strings.Cut(env, "=")
		t.Setenv(key, value)
	}
	umask := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(umask) })
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{4, 24, 12345}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setgroups(groups) })

	runtime.LockOSThread() // the processor mask is the thread's, and its children's
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.SchedSetaffinity(0, &all) // else later tests are slower
		runtime.UnlockOSThread()
	})
	return cache
}
