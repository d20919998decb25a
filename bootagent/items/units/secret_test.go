// SPDX-License-Identifier: Apache-2.0

package units

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// A unit without its secret is left out, and leaves when it loses it; one that has it is as old
// as the secret.
func TestUnitsOfSecrets(t *testing.T) {
	require.Root(t)
	root, dir := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db"), []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	j := itemtest.Journal(t, t.TempDir())
	unit := spec.Unit{Name: "app.service", Content: "[Service]\nLoadCredential=db:/run/caisson/secret/db\n", DropIns: []spec.DropIn{{Name: "x", Content: "[Service]\n"}}}
	why := ""
	pass := func() (drift []spec.Drift) {
		t.Helper()
		it := New([]spec.Unit{unit}, root, nil, j).WithSecrets(Secrets{Dir: dir, Lacks: func(string) string { return why }})
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var left []item.Entry
		for _, e := range j.Entries(Name) {
			for _, d := range drift {
				if d.Action == spec.ActionRemove && d.Key == e.Key {
					left = append(left, e)
				}
			}
		}
		if err := it.Restore(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
		return drift
	}
	there := func() bool {
		_, err := os.Lstat(filepath.Join(root, "etc/systemd/system/app.service"))
		return err == nil
	}
	if pass(); !there() {
		t.Fatal("a unit with its secret has no file")
	}
	why = "no key"
	pass()
	if drift := pass(); there() || len(drift) != 1 || drift[0].Action != spec.ActionCannot || drift[0].Reason != why {
		t.Errorf("without it: there %t, %+v", there(), drift)
	}
	why = ""
	if pass(); !there() {
		t.Error("it does not come back")
	}
	before := time.Now().Add(-time.Hour)
	for _, name := range []string{rules.UnitFile("app.service"), rules.UnitDropIn("app.service", "x")} {
		if err := os.Chtimes(filepath.Join(root, name), before, before); err != nil {
			t.Fatal(err)
		}
	}
	it := New([]spec.Unit{unit}, root, nil, j).WithSecrets(Secrets{Dir: dir, Lacks: func(string) string { return "" }})
	if newest := it.newest(unit); newest.Before(before.Add(30 * time.Minute)) {
		t.Errorf("it is as old as its files, %v, not as its secret", newest)
	}
}
