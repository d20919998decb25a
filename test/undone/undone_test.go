// SPDX-License-Identifier: Apache-2.0

package undone

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// undone is one protection that is taken away.
type undone struct {
	row     string // of docs/faults.md, by a test that it names; "" is the test below
	without string // what is taken away, as its cell says
	file    string // below the repository
	old     string // once in the file
	new     string
	test    string // that has to fail then
	in      string // its package, below the repository; "" is that of the file
}

func (u undone) at() string {
	if u.in != "" {
		return u.in
	}
	return filepath.Dir(u.file)
}

func (u undone) named() string { return cmp.Or(u.row, u.test) }

const repository = "../.."

// slow are packages that take long to compile, or whose tests do.
var slow = []string{"bootagent/node", "bootagent/boot/initramfs", "bootagent/boot/network", "layers"}

// TestUndone takes away some of them, of packages that are not slow.
func TestUndone(t *testing.T) {
	require.Root(t) // as most of the tests do
	taken := 0
	for n, u := range table {
		if !slices.Contains(slow, u.at()) && n%2 == 0 {
			taken++
			u.shows(t)
		}
	}
	if taken < len(table)/4 {
		t.Errorf("%d of %d are taken away here, want a quarter", taken, len(table))
	}
}

// TestLongUndone takes away each protection, and holds that the tests pass with it.
func TestLongUndone(t *testing.T) {
	require.Long(t)
	passed := map[string]bool{}
	for _, u := range table {
		u.shows(t)
		if name := u.at() + "." + u.test; !passed[name] {
			passed[name] = true
			t.Run(name, func(t *testing.T) {
				if said, err := u.run(t); err != nil {
					t.Errorf("it fails with its protection: %v\n%s", err, said)
				}
			})
		}
	}
}

// TestEachTextIsThere: what is taken away is in its file, once.
func TestEachTextIsThere(t *testing.T) {
	for _, u := range table {
		if _, err := u.changed(); err != nil {
			t.Errorf("%s: %v", u.named(), err)
		}
	}
}

// shows holds that a test fails without what its row names.
func (u undone) shows(t *testing.T) {
	t.Run(fmt.Sprintf("%s without %s", u.named(), u.without), func(t *testing.T) {
		t.Parallel()
		said, err := u.run(t, "-overlay", u.overlay(t))
		switch {
		case strings.Contains(said, "--- SKIP: "+u.test+" "):
			require.Missing(t, "root", u.test+" was skipped:\n"+said)
		case err == nil:
			t.Errorf("%s passes, too: it protects from nothing, or the test tests nothing\n%s", u.test, said)
		case !strings.Contains(said, "--- FAIL: "+u.test+" "):
			t.Errorf("%s does not fail: %v\n%s", u.test, err, said)
		}
	})
}

// run runs the row's test.
func (u undone) run(t *testing.T, more ...string) (said string, err error) {
	t.Helper()
	args := append([]string{"test", "-count=1", "-vet=off", "-v", "-timeout=5m", "-run=^" + u.test + "$"}, more...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./"+u.at())...)
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// changed is the row's file as it is compiled.
func (u undone) changed() (string, error) {
	data, err := os.ReadFile(filepath.Join(repository, u.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(data), u.old); n != 1 {
		return "", fmt.Errorf("%s has this %d times, want it once: %s", u.file, n, u.old)
	}
	return strings.Replace(string(data), u.old, u.new, 1), nil
}

// overlay writes what go build -overlay takes, and returns its name.
func (u undone) overlay(t *testing.T) string {
	t.Helper()
	text, err := u.changed()
	if err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Abs(filepath.Join(repository, u.file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(text), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
