// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/itemtest"
)

// play runs one row and reports whether the user gained something.
func play(t *testing.T, row attack.LocalUser) bool {
	t.Helper()
	dir := row.Stage(t)
	want := &spec.Perm{}
	for _, r := range row.Rules {
		want.Paths = append(want.Paths, spec.PermPath{Path: filepath.Join(dir, r.Path), Owner: r.Owner, Mode: r.Mode})
	}
	j := &itemtest.Interrupted{Journal: itemtest.Journal(t, t.TempDir()), Once: func() { attack.AsUser(t, dir, row.Between) }}
	it := New(want, "", j, t.Logf)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("drift %+v", drift)
	t.Logf("apply: %v", it.Apply(t.Context(), drift))
	if row.After != "" {
		attack.AsUser(t, dir, row.After)
		if err := New(nil, "", j, t.Logf).Restore(t.Context(), j.Entries(Name)); err != nil {
			t.Error(err)
		}
	}
	return row.Gained(dir)
}

func TestLocalUsers(t *testing.T) {
	for _, row := range attack.LocalUsers(t, Name) {
		t.Run(row.Name, func(t *testing.T) {
			if gained := play(t, row); gained != (row.Check == "") {
				t.Errorf("the user gained: %v", gained)
			}
		})
	}
}

// Without its check each row must gain, or the row proves nothing. That of
// package safepath is proven there.
func TestLocalUsersWithoutTheCheck(t *testing.T) {
	away := map[string]func(){"set-id": func() { setID = 0 }, "lent": func() { wasLent = func(_, _, _ attr) bool { return false } }}
	for _, c := range guards {
		away[c.Name] = func() { guards = guards.With(c.Name, func(step) error { return nil }) }
	}
	rows := map[string]int{}
	for _, row := range attack.LocalUsers(t, Name) {
		if rows[row.Check]++; row.Check == "" || row.Check == "safepath" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			defer func(bits uint32, lent func(_, _, _ attr) bool, l check.List[step]) {
				setID, wasLent, guards = bits, lent, l
			}(setID, wasLent, guards)
			take := away[row.Check]
			if take == nil {
				t.Fatalf("there is no check %q", row.Check)
			}
			if take(); !play(t, row) {
				t.Errorf("without the check %q the attack still fails", row.Check)
			}
		})
	}
	for name := range away {
		if rows[name] == 0 {
			t.Errorf("no row attacks the check %q", name)
		}
	}
}
