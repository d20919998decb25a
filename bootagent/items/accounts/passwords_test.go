// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// hashes are two of them.
var (
	first  = "$6$first$" + strings.Repeat("a", 86)
	second = "$6$second$" + strings.Repeat("b", 86)
)

// opens is a node that can open these secrets, by name.
type opens map[string]string

func (o opens) open(name string) ([]byte, string) {
	value, ok := o[name]
	if !ok {
		return nil, "no key"
	}
	return []byte(value), ""
}

var annAndBob = []spec.Password{{User: "ann", Secret: "a"}, {User: "bob", Secret: "b"}}

// No user is at home where it acts: /etc is root's alone.
func TestPasswordsConform(t *testing.T) {
	require.Root(t)
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		root := lives.write(t, t.TempDir())
		can := opens{"a": first + "\n", "b": second}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return NewPasswords(annAndBob, root, can.open, j) },
			Empty:    func(j item.Journal) item.Item { return NewPasswords(nil, root, can.open, j) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	})
}

// pass runs one kind as a reconciler does: check, restore, apply.
func pass(t *testing.T, it item.Item, j item.Journal) []spec.Drift {
	t.Helper()
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(j.Entries(it.Name()), func(e item.Entry) bool {
		return !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key })
	})
	if err := errors.Join(it.Restore(t.Context(), left), it.Apply(t.Context(), drift)); err != nil {
		t.Fatal(err)
	}
	return drift
}

// held is a root with a journal on which both kinds act, as on a node.
type held struct {
	*testing.T
	root, dir string
	can       opens
}

func newHeld(t *testing.T, root tree) *held {
	t.Helper()
	require.Root(t)
	return &held{t, root.write(t, t.TempDir()), t.TempDir(), opens{"a": first, "b": second}}
}

// becomes puts a layer and passwords in effect and wants nothing to be left to do, and nothing
// of a secret in the journal or in what is said.
func (h *held) becomes(layer Want, passwords ...spec.Password) {
	h.Helper()
	j := itemtest.Journal(h.T, h.dir)
	kinds := []item.Item{New(layer, h.root, nil, j), NewPasswords(passwords, h.root, h.can.open, j)}
	var said []spec.Drift
	for _, it := range slices.Backward(kinds) {
		drift, err := it.Check(h.Context())
		if err != nil {
			h.Fatal(err)
		}
		left := slices.DeleteFunc(j.Entries(it.Name()), func(e item.Entry) bool {
			return !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key })
		})
		if err := it.Restore(h.Context(), left); err != nil {
			h.Fatal(err)
		}
		said = append(said, drift...)
	}
	for _, it := range kinds {
		said = append(said, pass(h.T, it, j)...)
	}
	for _, it := range kinds {
		if drift, err := it.Check(h.Context()); err != nil || len(drift) > 0 {
			h.Errorf("%s: %+v, %v is left", it.Name(), drift, err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(h.dir, "journal"))
	if err != nil {
		files, _ := filepath.Glob(filepath.Join(h.dir, "*"))
		h.Fatalf("%v: there is %q", err, files)
	}
	for _, value := range h.can {
		for what, text := range map[string]string{"the journal": string(kept), "the drift": fmt.Sprintf("%+v", said)} {
			if strings.Contains(text, value[:min(len(value), 40)]) {
				h.Errorf("%s has a hash: %s", what, text)
			}
		}
	}
}

func (h *held) shadow(lines ...string) {
	h.Helper()
	has(h.T, h.root, "etc/shadow", lines...)
}

// A password changes, is corrected, and what the account had comes back.
func TestPasswords(t *testing.T) {
	h := newHeld(t, lives)
	h.becomes(Want{}, annAndBob...)
	h.shadow("ann:"+first+":20000:", "bob:"+second+":20000:0:30:", "root:*:", "systemd-oom:!*")
	h.can["a"] = second
	h.becomes(Want{}, annAndBob...)
	h.shadow("ann:" + second)
	tree{"etc/shadow": strings.Replace(lives["etc/shadow"], "ann:$6$a:", "ann:$6$byhand:", 1)}.write(t, h.root)
	h.becomes(Want{}, annAndBob...)
	h.shadow("ann:"+second, "bob:"+second)
	h.becomes(Want{}, annAndBob[1])
	h.shadow("ann:$6$a:20000:", "bob:"+second)
	h.becomes(Want{})
	if now, err := os.ReadFile(filepath.Join(h.root, "etc/shadow")); err != nil || string(now) != lives["etc/shadow"] {
		t.Errorf("%v\n%s\nwant\n%s", err, now, lives["etc/shadow"])
	}
}

// Another layer is put over the root while a password is a secret: what it changes of the row
// is changed, and its own password comes back.
func TestPasswordsCoverALayer(t *testing.T) {
	locked := func(of tree) tree {
		return of.with(tree{"etc/shadow": strings.NewReplacer("ann:$6$a:", "ann:*:", "bob:$6$b:", "bob:*:", "bob:$6$new:", "bob:*:").Replace(of["etc/shadow"])})
	}
	bob := annAndBob[1]
	for what, c := range map[string]struct{ stacked, wanted tree }{
		"both locked":                 {locked(stacked), locked(wanted)},
		"the password leaves it":      {stacked, locked(wanted)},
		"a password comes to it":      {locked(stacked), wanted},
		"another password beneath":    {stacked, wanted},
		"a user who is new has one":   {locked(stacked), locked(wanted)},
		"the user's row is a new one": {locked(stacked.with(tree{"etc/shadow": "ann:*:20000:0:99999:7:::\n"})), locked(wanted)},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHeld(t, c.stacked)
			before := snapshot(t, h.root)
			next := difference(t, c.stacked, c.wanted)
			with := []spec.Password{bob}
			if strings.Contains(what, "new") {
				with = append(with, spec.Password{User: "cem", Secret: "a"})
			}
			if strings.Contains(c.stacked["etc/shadow"], "bob:") {
				h.becomes(Want{}, bob)
			}
			h.becomes(next, with...)
			h.shadow("bob:" + second + ":20100:")
			h.becomes(next)
			for line := range strings.Lines(c.wanted["etc/shadow"]) {
				h.shadow(strings.TrimSuffix(line, "\n"))
			}
			h.becomes(next, with...)
			if strings.Contains(c.stacked["etc/shadow"], "bob:") {
				h.becomes(Want{}, bob)
			}
			h.becomes(Want{})
			same(t, before, snapshot(t, h.root))
		})
	}
}

func same(t *testing.T, want, got string) {
	t.Helper()
	if want != got {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// What this node cannot have is said, and nothing of a value with it.
func TestPasswordsThatAreNone(t *testing.T) {
	h := newHeld(t, lives)
	h.can["plain"], h.can["method"] = "hunter2hunter2", "$hunter2$x"
	j := itemtest.Journal(t, h.dir)
	before := snapshot(t, h.root)
	want := []spec.Password{{User: "ann", Secret: "none"}, {User: "bob", Secret: "plain"}, {User: "cem", Secret: "a"}, {User: "root", Secret: "a"}, {User: "systemd-oom", Secret: "method"}}
	drift := pass(t, NewPasswords(want, h.root, h.can.open, j), j)
	got := map[string]string{}
	for _, d := range drift {
		got[d.Key] = d.Action + ": " + d.Reason
	}
	for user, said := range map[string]string{"ann": "cannot: no key", "bob": `refuse: secret "plain" is not a crypt(5) hash`, "cem": "defer: this root has no account cem", "root": "refuse: ", "systemd-oom": "refuse: secret"} {
		if !strings.HasPrefix(got[user], said) {
			t.Errorf("%s: %q, want %q", user, got[user], said)
		}
	}
	if text := fmt.Sprintf("%+v", drift); strings.Contains(text, "hunter2") {
		t.Errorf("a value is shown: %s", text)
	}
	same(t, before, snapshot(t, h.root))

	// A key that is gone takes the password along.
	h.becomes(Want{}, annAndBob...)
	delete(h.can, "a")
	j = itemtest.Journal(t, h.dir)
	pass(t, NewPasswords(annAndBob, h.root, h.can.open, j), j)
	h.shadow("ann:$6$a:", "bob:"+second)
	if drift, err := NewPasswords(annAndBob, h.root, h.can.open, j).Check(t.Context()); err != nil || len(drift) != 1 || drift[0].Action != spec.ActionCannot {
		t.Errorf("%+v, %v", drift, err)
	}
}
