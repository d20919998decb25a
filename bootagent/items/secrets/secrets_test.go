// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// reversed opens what a test has sealed.
func reversed(s spec.Secret) ([]byte, error) {
	if s.To != "me" {
		return nil, errors.New("it is sealed to another key")
	}
	var out []byte
	for i := range s.Sealed {
		out = append(out, s.Sealed[len(s.Sealed)-1-i])
	}
	return out, nil
}

// No user is at home where it acts: /run/caisson is root's alone.
// Nothing tells of its changes: /run/caisson is root's alone.
func TestConformance(t *testing.T) {
	want := []spec.Secret{{Name: "a", To: "me", Sealed: "1"}, {Name: "b", To: "me", Sealed: "2"}, {Name: "c.d", To: "me", Sealed: "3"}}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		place := Place{Dir: filepath.Join(t.TempDir(), "secret")}
		if err := New(nil, place, nil).Make(); err != nil {
			t.Fatal(err)
		}
		return itemtest.World{
			Wanted: func(item.Journal) item.Item { return New(want, place, reversed) },
			Empty:  func(item.Journal) item.Item { return New(nil, place, reversed) },
			Snapshot: func() string {
				var out strings.Builder
				entries, err := os.ReadDir(place.Dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					data, err := os.ReadFile(filepath.Join(place.Dir, e.Name()))
					info, errInfo := e.Info()
					if err != nil || errInfo != nil {
						t.Fatal(err, errInfo)
					}
					fmt.Fprintf(&out, "%s %v %s\n", e.Name(), info.Mode(), data)
				}
				return out.String()
			},
		}
	})
}

// What this node cannot open is refused, and what is left of it is closed.
func TestWhatCannotBeOpened(t *testing.T) {
	place := Place{Dir: filepath.Join(t.TempDir(), "secret")}
	pass := func(it *Item) []spec.Drift {
		t.Helper()
		drift, err := it.Check(t.Context())
		if err == nil {
			err = errors.Join(it.Restore(t.Context(), nil), it.Apply(t.Context(), drift))
		}
		if err != nil {
			t.Fatal(err)
		}
		return drift
	}
	pass(New([]spec.Secret{{Name: "a", To: "me", Sealed: "x"}}, place, reversed))
	it := New([]spec.Secret{{Name: "a", To: "other", Sealed: "x"}, {Name: "../b", To: "me", Sealed: "x"}}, place, reversed)
	drift := pass(it)
	if len(drift) != 3 || drift[0].Action != spec.ActionRefuse || drift[1].Action != spec.ActionRefuse || drift[2].Action != spec.ActionRemove {
		t.Fatalf("%+v", drift)
	}
	for name, want := range map[string]string{"a": "no key: it is sealed to another key", "c": "no key"} {
		if got := it.Lacks(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if left, err := os.ReadDir(place.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(place.Dir, "../b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name led out: %v", err)
	}
}

// Nothing is opened where memory could be swapped out.
func TestOnlyInARamfs(t *testing.T) {
	require.Root(t)
	place := Place{Dir: filepath.Join(t.TempDir(), "secret"), Ram: true}
	it := New([]spec.Secret{{Name: "a", To: "me", Sealed: "x"}}, place, reversed)
	drift, err := it.Check(t.Context())
	if err == nil {
		err = it.Apply(t.Context(), drift)
	}
	if err != nil {
		t.Skipf("no ramfs can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(place.Dir, unix.MNT_DETACH) }) // the test is over
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(place.Dir, "a"), &st); err != nil || st.Type != unix.RAMFS_MAGIC {
		t.Errorf("it lies on %x, %v", st.Type, err)
	}
	if info, err := os.Stat(place.Dir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("%v, %v", info, err)
	}
	if err := unix.Unmount(place.Dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place.Dir, "a"), []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	if drift, err = New([]spec.Secret{{Name: "a", To: "me", Sealed: "x"}}, place, reversed).Check(t.Context()); err != nil || len(drift) != 1 {
		t.Errorf("a file that is not in memory counts: %+v, %v", drift, err)
	}
}

// What the agent itself shows to others has files of its own, which follow their secrets and
// leave with them.
func TestOwn(t *testing.T) {
	place := Place{Dir: filepath.Join(t.TempDir(), "secret")}
	want := []spec.Secret{{Name: "pull", To: "me", Sealed: "1"}, {Name: "token", To: "other", Sealed: "2"}}
	pass := func(it *Item) {
		t.Helper()
		drift, err := it.Check(t.Context())
		if err == nil {
			err = errors.Join(it.Restore(t.Context(), nil), it.Apply(t.Context(), drift))
		}
		if err != nil {
			t.Fatal(err)
		}
		drift, err = it.Check(t.Context())
		for _, d := range drift {
			if d.Action != spec.ActionRefuse {
				t.Errorf("left is %+v", d)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	own := map[string]string{"auth.json": "pull", "report.token": "token"}
	holds := func(when, auth string, files int) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(place.Dir, Own, "auth.json"))
		left, _ := filepath.Glob(filepath.Join(place.Dir, Own, "*"))
		if string(data) != auth || len(left) != files || (err == nil) != (auth != "") {
			t.Errorf("%s: %q, %v, of %q", when, data, err, left)
		}
	}
	if err := New(want, place, reversed).WithOwn(own).OpenOwn(); err != nil {
		t.Fatal(err)
	}
	holds("by a loader", "1", 1)
	if _, err := os.Lstat(filepath.Join(place.Dir, "pull")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a loader opened more than it needs: %v", err)
	}
	pass(New(want, place, reversed).WithOwn(own))
	holds("by the agent", "1", 1)
	want[0].Sealed = "32"
	pass(New(want, place, reversed).WithOwn(own))
	holds("another value", "23", 1)
	pass(New(want, place, reversed).WithOwn(map[string]string{"report.json": "pull"}))
	holds("another file", "", 1)
	pass(New(want, place, reversed))
	holds("none", "", 0)
	if it := New(nil, place, reversed); it.Used() {
		pass(it)
		if it.Used() {
			t.Error("something is left")
		}
	}
}
