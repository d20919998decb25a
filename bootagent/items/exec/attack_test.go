// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/golden"
	"github.com/caisson-os/caisson/test/itemtest"
)

func reverts(t *testing.T) []attack.StateDisk {
	rows := attack.LoadClass[attack.StateDisk](t, "statedisk")
	return slices.DeleteFunc(rows, func(r attack.StateDisk) bool { return r.Revert == "" || !strings.HasPrefix(r.Check, "exec/") })
}

// meet has a script that ran be taken back on a disk that says what a row does.
func meet(t *testing.T, row attack.StateDisk, checks check.List[*undoing]) (undid, evil bool, err error) {
	t.Helper()
	dir, effect := t.TempDir(), t.TempDir()
	theirs := effect + ".theirs"
	w := spec.Exec{Name: "a", Data: "true\n", Revert: "touch " + effect + "/undid\n"}
	j := itemtest.Journal(t, t.TempDir())
	it := New(nil, Host{Dir: dir, Runner: new(process.Group), Scopes: itemtest.Scopes, Journal: j, Signed: func() []Signed { return []Signed{{Script: w}} }, Log: t.Logf})
	it.reverts = checks
	back := spec.Exec{Name: "a", Data: w.Revert}
	u := undo{identity(w, nil), back}
	bad := spec.Exec{Name: "a", Data: "touch " + effect + "/evil\n"}
	switch row.Revert {
	case "text in the journal":
		u.Script = bad
	case "script in the journal":
		u = undo{identity(bad, nil), bad}
	case "a link to a directory":
		if err := os.Mkdir(theirs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(theirs, it.script(back).dir); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("%q is nothing that can be done", row.Revert)
	}
	if err := j.Record(item.Entry{Item: Name, Key: Key(w, nil), Prior: item.Raw(nil), Applied: item.Raw(u), Scope: item.Root}); err != nil {
		t.Fatal(err)
	}
	err = it.Restore(t.Context(), j.Entries(Name))
	there := func(name string) bool { _, err := os.Stat(name); return err == nil }
	return there(effect + "/undid"), there(effect+"/evil") || there(theirs+"/a"), err
}

// TestRevertAttacks: only what a signed overlay has is run, and nothing is written
// where a link leads.
func TestRevertAttacks(t *testing.T) {
	for _, row := range reverts(t) {
		undid, evil, err := meet(t, row, revertChecks)
		if signed := row.Revert == "text in the journal"; evil || undid != signed || (err == nil) != signed {
			t.Errorf("%s: the signed script ran: %v; another did: %v; %v", row.Name, undid, evil, err)
		}
	}
}

// TestNoCheckIsVacuous takes each check away.
func TestNoCheckIsVacuous(t *testing.T) {
	named := map[string]bool{}
	for _, row := range reverts(t) {
		_, name, _ := strings.Cut(row.Check, "/")
		named[name] = true
		if _, evil, err := meet(t, row, revertChecks.Without(name)); !evil {
			t.Errorf("%s: it does no harm without %q: %v", row.Name, name, err)
		}
	}
	for _, name := range revertChecks.Names() {
		if !named[name] {
			t.Errorf("no row names the check %q", name)
		}
	}
}

// asked is a Runner that writes down which runs it is asked of; all of them are over.
type asked []string

func (a *asked) Start(context.Context, process.Command) (string, error) {
	return "", errors.New("nothing is started")
}
func (a *asked) Wait(_ context.Context, id string) error { *a = append(*a, id); return nil }
func (a *asked) End(id string) error                     { *a = append(*a, id); return nil }
func (a *asked) Running(id string) bool                  { *a = append(*a, id); return false }

// asks returns which runs the agent asks for where a row's record lies.
func asks(t *testing.T, row attack.StateDisk, checks check.List[claim]) asked {
	t.Helper()
	w := spec.Exec{Name: "a", Data: "true\n"}
	scopes := itemtest.Scopes
	scopes.Kernel = "ours"
	var runs asked
	it := New([]spec.Exec{w}, Host{Dir: t.TempDir(), Runner: &runs, Scopes: scopes, Journal: itemtest.Journal(t, t.TempDir()), Log: t.Logf})
	it.claims = checks
	s := it.script(w)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, runFile), []byte(row.Record), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = it.Apply(t.Context(), checked(t, it)) // nothing can be started here
	return runs
}

// TestRecordsNameNoServices: a caller that asks systemd for a run stops what is left of it,
// so a record on the disk must not name any service of the node.
func TestRecordsNameNoServices(t *testing.T) {
	tried := 0
	for _, row := range attack.LoadClass[attack.StateDisk](t, "statedisk") {
		if row.Record == "" {
			continue
		}
		tried++
		_, name, attacks := strings.Cut(row.Check, "/")
		if runs := asks(t, row, claimChecks); attacks == (len(runs) > 0) {
			t.Errorf("%s: the agent asks for %q", row.Name, runs)
		}
		if attacks && len(asks(t, row, claimChecks.Without(name))) == 0 {
			t.Errorf("%s: it does no harm without %q", row.Name, name)
		}
	}
	if tried < 4 {
		t.Errorf("%d rows", tried)
	}
}

// TestGolden: the history of a script that a release wrote is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/run.json", Page: "../../../docs/formats/node-files.md", New: new(record), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { return parseRecord("run.json", data) },
		Types: []reflect.Type{reflect.TypeFor[record]()}})
}
