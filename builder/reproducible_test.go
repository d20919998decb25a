// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// TestReproducible builds the same recipe twice, the second time as another
// machine would: other umask, time zone, locale, user, number of processors,
// build path. The first may be what other tests of this run have made; the second
// shares package files with it and nothing else.
func TestReproducible(t *testing.T) {
	o := testOptions(t)
	recipe := testRecipe()
	recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: "python3-minimal"})
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	debs := t.TempDir()
	build := func(cache string) *Result {
		t.Helper()
		o := o
		o.CacheDir, o.Debs = cache, debs
		r, err := Build(context.Background(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := build(sharedCache)

	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, env := range []string{"TZ=Asia/Tokyo", "LANG=tr_TR.UTF-8", "LC_ALL=tr_TR.UTF-8", "USER=somebody", "HOME=/nonexistent", "SOURCE_DATE_EPOCH=1"} {
		key, value, _ := strings.Cut(env, "=")
		t.Setenv(key, value)
	}
	runtime.LockOSThread() // the processor mask is the thread's, and its children's
	defer runtime.UnlockOSThread()
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
	defer unix.SchedSetaffinity(0, &all) // else later tests are slower
	deep := filepath.Join(t.TempDir(), "a much", "longer", "path")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	second := build(deep)

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
