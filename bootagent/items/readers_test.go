// SPDX-License-Identifier: Apache-2.0

package items

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// A secret that is opened in the same pass as its file is written is asked about before that, at a
// first run and live: what its reader does not take is not written, nor a new value of what it
// took, and what stood there stays.
func TestReadersAreAskedAboutSecrets(t *testing.T) {
	if !itemtest.InNamespaces(t, "visudo") {
		return
	}
	etc := filepath.Join(t.TempDir(), "etc")
	at := filepath.Join(etc, "sudoers.d/ops")
	for name, text := range map[string]string{"passwd": "root:x:0:0::/root:/bin/sh\n", "group": "root:x:0:\n", "sudoers": "", "sudoers.d/ops": "# before\n"} {
		name := filepath.Join(etc, name)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmp.Or(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(etc, "/etc", "", unix.MS_BIND, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	const good, wrong = "ops ALL=(ALL) NOPASSWD: ALL\n", "ops ALL=(ALL) NOPASWD ALL\n"
	for way, run := range map[string]func(next, previous []item.Item, j item.Journal) Result{
		"first run": func(next, _ []item.Item, j item.Journal) Result { return Reconcile(t.Context(), next, j) },
		"live": func(next, previous []item.Item, j item.Journal) Result {
			return Transact(t.Context(), next, previous, j, nil)
		},
	} {
		j, state := itemtest.Journal(t, t.TempDir()), t.TempDir()
		table := func(value string) []item.Item {
			o := Options{Journal: j, Scopes: testScopes, State: state, OpenSecret: func(s spec.Secret) ([]byte, error) { return []byte(s.Sealed), nil }}
			var want spec.Items
			if value != "" {
				o.Secrets = []spec.Secret{{Name: "rules", Sealed: value}}
				want.Files = []spec.File{{Path: "/etc/sudoers.d/ops", Secret: "rules", Mode: "0440"}}
			}
			return Table(want, o)
		}
		last, before := "", "# before\n"
		for _, value := range []string{wrong, good, wrong, good} {
			r := run(table(value), table(last), j)
			text, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			refused := r.Err != nil && strings.Contains(r.Err.Error(), "/usr/sbin/visudo does not take it: what it says is not shown") &&
				r.RolledBack == (way == "live") && string(text) == before
			if taken := r.Err == nil && len(r.Drift) == 0 && string(text) == good; taken != (value == good) || refused == taken {
				t.Errorf("%s: %q: %q, %+v, %v", way, value, text, r.Drift, r.Err)
			}
			if !r.RolledBack {
				last, before = value, string(text)
			}
		}
		if gone := run(table(""), table(last), j); gone.Err != nil || len(gone.Drift) > 0 {
			t.Errorf("%s: it does not leave: %+v, %v", way, gone.Drift, gone.Err)
		}
		if text, err := os.ReadFile(at); err != nil || string(text) != "# before\n" {
			t.Errorf("%s: when it has left: %q, %v", way, text, err)
		}
	}
}
