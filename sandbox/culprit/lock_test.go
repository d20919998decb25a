// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// One run makes a search at a time, and a run that ended leaves nothing that keeps another out.
func TestOneRunAtATime(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	dir := filepath.Join(cache, "bisect/x.work")
	var one, other Node
	for range 2 {
		unlock, err := one.lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(one.work, "half"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := other.lock(dir); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("beside another run: %v", err)
		}
		if _, err := os.Stat(filepath.Join(one.work, "half")); err != nil {
			t.Error(err)
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 { // a build takes no other
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
