// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/roottest"
)

// TestDiffer: content, mode and being there at all are named, a date is not, and of two images
// the upper one counts.
func TestDiffer(t *testing.T) {
	made := func(random, key string, mode os.FileMode, more map[string]string) *Result {
		r := &Result{trees: []string{t.TempDir(), t.TempDir()}}
		roottest.Put(t, r.trees[0], map[string]string{"etc/below": random, "etc/same": "x", "etc/mode": "x"})
		roottest.Put(t, r.trees[1], map[string]string{"etc/below": "x", "etc/key": key})
		roottest.Put(t, r.trees[1], more)
		if err := os.Chmod(filepath.Join(r.trees[0], "etc/mode"), mode); err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, two := made("1", "1", 0o600, nil), made("2", "2", 0o640, map[string]string{"etc/more": ""})
	if err := os.Chtimes(filepath.Join(one.trees[0], "etc/same"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]*Result{{one, two}, {two, one}} {
		if got, err := Differ(pair[0], pair[1]); err != nil || !slices.Equal(got, []string{"/etc/key", "/etc/mode", "/etc/more"}) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got, err := Differ(one, one); err != nil || len(got) > 0 {
		t.Errorf("a layer differs from itself in %q, %v", got, err)
	}
}

// TestAgain: what is made again comes from no cache of the first.
func TestAgain(t *testing.T) {
	step := step{name: "x", inputs: func(*build) (any, error) { return nil, nil }}
	first, err := (&build{}).key(step)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := (&build{options: Options{Again: true}}).key(step); err != nil || first == second {
		t.Errorf("both are %s, %v", second, err)
	}
}
