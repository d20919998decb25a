// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/attack"
)

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	attack.Partition{Files: map[string]string{
		"state.json": "{}", "journal/journal": "@pipe", "overlays": "@link /etc", "store/sha256/aa": "@link /etc/shadow",
		"identity/machine-id": "id", "exec/a.sh/out": "@link log", "persist/home/a/.profile": "@link elsewhere", "lost+found": "@link /",
	}}.Fill(t, dir)
	var talk strings.Builder
	f := &Finder{Say: func(format string, args ...any) { fmt.Fprintf(&talk, format+"\n", args...) }}
	if err := f.Sweep(dir); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left = append(left, name[len(dir)+1:])
		}
		return err
	})
	want := []string{"exec/a.sh/out", "identity/machine-id", "persist/home/a/.profile", "state.json"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, %v; want %q", left, err, want)
	}
	for _, gone := range []string{"journal/journal", "overlays", "store/sha256/aa", "lost+found"} {
		if !strings.Contains(talk.String(), gone+" on the state disk") {
			t.Errorf("%s is not said:\n%s", gone, talk.String())
		}
	}
}
