// SPDX-License-Identifier: Apache-2.0

// Package itemtest is the suite that every runtime item passes: check writes
// nothing, applying twice is applying once, a check after apply is empty,
// restore gives back what was, a cancelled context returns, and a run killed
// between any two writes is put right by the next one.
//
// Only tests import it.
package itemtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
)

// Scopes are the identities that the suite's journals are opened with.
var Scopes = item.Scopes{Kernel: "boot-1", Root: "root-1", Disk: "disk-1"}

// World is one small system that an item acts on, made again for every test.
type World struct {
	Wanted   func(j item.Journal) item.Item // something is wanted that is not so yet
	Empty    func(j item.Journal) item.Item // the same system, nothing is wanted
	Snapshot func() string                  // all of the system that the item may change
	OneWay   bool                           // restore cannot give it back (exec without a revert script)
}

// Run runs the suite; world is called once a test.
func Run(t *testing.T, world func(t *testing.T) World) {
	oneWay := false
	for _, tc := range []struct {
		name string
		test func(*testing.T, World)
	}{
		{"check writes nothing", checkWritesNothing},
		{"apply settles", applySettles},
		{"restore", restoreGivesBack},
		{"cancelled", cancelled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := world(t)
			oneWay = w.OneWay
			tc.test(t, w)
		})
	}
	t.Run("killed in apply", func(t *testing.T) { killedInApply(t, world) })
	if !oneWay {
		t.Run("killed in restore", func(t *testing.T) { killedInRestore(t, world) })
	}
}

// Words of a comment in the file with a kind's suite, behind which stands why that is so.
const (
	Private = "No user is at home where it acts: "
	Untold  = "Nothing tells of its changes: "
)

// Suite returns the folder and the text of the file that runs a kind's suite, below the folder of
// package items: it has the kind's name.
func Suite(t testing.TB, items, kind string) (folder, text string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(items, "*", kind+"_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "itemtest.Run(") {
			return filepath.Base(filepath.Dir(name)), string(data)
		}
	}
	t.Errorf("no %s_test.go runs the conformance suite for items of that kind", kind)
	return "", ""
}

// Says reports whether the file of a kind's suite has some words, and a reason behind them.
func Says(t testing.TB, items, kind, words string) bool {
	t.Helper()
	_, text := Suite(t, items, kind)
	_, why, says := strings.Cut(text, "\n// "+words)
	return says && !strings.HasPrefix(why, "\n")
}

// Journal opens a journal in dir as after a start of the agent: the process that
// held it has ended.
func Journal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	if before, ok := holders.Load(dir); ok {
		_ = before.(*journal.Journal).Close() // a process that has ended reports nothing
	}
	j, err := journal.Open(dir, Scopes)
	if err != nil {
		t.Fatal(err)
	}
	holders.Store(dir, j)
	t.Cleanup(func() { _ = j.Close(); holders.Delete(dir) }) // the test is over
	return j
}

// Interrupted is a journal that lets somebody act, once, before the agent does.
type Interrupted struct {
	item.Journal
	Once func()
}

// Record runs Once, the first time, and records.
func (j *Interrupted) Record(entries ...item.Entry) error {
	if do := j.Once; do != nil {
		j.Once = nil
		do()
	}
	return j.Journal.Record(entries...)
}

var holders sync.Map // of open journals, by directory

func check(t *testing.T, it item.Item) []spec.Drift {
	t.Helper()
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	return drift
}

func apply(t *testing.T, it item.Item) {
	t.Helper()
	if err := it.Apply(t.Context(), check(t, it)); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

func empty(t *testing.T, it item.Item) {
	t.Helper()
	if drift := check(t, it); len(drift) > 0 {
		t.Fatalf("check finds %+v, want nothing", drift)
	}
}

// leaving are the entries that a check says left the config.
func leaving(it item.Item, j item.Journal, drift []spec.Drift) []item.Entry {
	return slices.DeleteFunc(j.Entries(it.Name()), func(e item.Entry) bool {
		return !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key })
	})
}

func restore(t *testing.T, it item.Item, j item.Journal) {
	t.Helper()
	if err := it.Restore(t.Context(), leaving(it, j, check(t, it))); err != nil {
		t.Fatalf("restore: %v", err)
	}
}

func same(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func checkWritesNothing(t *testing.T, w World) {
	j := Journal(t, t.TempDir())
	it := w.Wanted(j)
	before := w.Snapshot()
	first := check(t, it)
	if len(first) == 0 {
		t.Fatal("the world wants nothing: it tests nothing")
	}
	same(t, "system after check", before, w.Snapshot())
	if n := len(j.Entries(it.Name())); n > 0 {
		t.Fatalf("check wrote %d entries to the journal", n)
	}
	if diff := cmp.Diff(first, check(t, it)); diff != "" {
		t.Fatalf("the order of drift is not stable:\n%s", diff)
	}
}

func applySettles(t *testing.T, w World) {
	j := Journal(t, t.TempDir())
	it := w.Wanted(j)
	drift := check(t, it)
	apply(t, it)
	empty(t, it)
	once, entries := w.Snapshot(), j.Entries(it.Name())
	if err := it.Apply(t.Context(), nil); err != nil {
		t.Fatalf("apply of nothing: %v", err)
	}
	same(t, "system after an empty apply", once, w.Snapshot())
	if !w.OneWay {
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatalf("apply again: %v", err)
		}
		same(t, "system after the second apply", once, w.Snapshot())
	}
	for _, first := range entries {
		i := slices.IndexFunc(j.Entries(it.Name()), func(e item.Entry) bool { return e.Key == first.Key })
		if i < 0 || string(j.Entries(it.Name())[i].Prior) != string(first.Prior) {
			t.Fatalf("the first original of %q was not kept", first.Key)
		}
	}
	empty(t, it)
}

func restoreGivesBack(t *testing.T, w World) {
	dir := t.TempDir()
	j := Journal(t, dir)
	before := w.Snapshot()
	apply(t, w.Wanted(j))
	if !w.OneWay && before == w.Snapshot() {
		t.Fatal("apply changed nothing that the snapshot shows: it tests nothing")
	}
	j = Journal(t, dir) // the agent was started again
	it := w.Empty(j)
	restore(t, it, j)
	empty(t, it)
	if n := len(j.Entries(it.Name())); n > 0 {
		t.Fatalf("%d entries are left after restore", n)
	}
	if !w.OneWay {
		same(t, "system after restore", before, w.Snapshot())
	}
}

func cancelled(t *testing.T, w World) {
	j := Journal(t, t.TempDir())
	it := w.Wanted(j)
	before, drift := w.Snapshot(), check(t, it)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := it.Check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("check with a cancelled context: %v", err)
	}
	if err := it.Apply(ctx, drift); !errors.Is(err, context.Canceled) {
		t.Errorf("apply with a cancelled context: %v", err)
	}
	same(t, "system after a cancelled apply", before, w.Snapshot())
}

func killedInApply(t *testing.T, world func(*testing.T) World) {
	everyKill(t, func(t *testing.T, kill int) bool {
		w, dir := world(t), t.TempDir()
		before := w.Snapshot()
		j := Journal(t, dir)
		it := w.Wanted(j)
		drift := check(t, it)
		died := killed(t, kill, func(ctx context.Context) error { return it.Apply(ctx, drift) })

		j = Journal(t, dir)
		it = w.Wanted(j)
		apply(t, it)
		empty(t, it)
		it = w.Empty(j)
		restore(t, it, j)
		empty(t, it)
		if !w.OneWay {
			same(t, "system after kill, apply, restore", before, w.Snapshot())
		}
		return died
	})
	everyKill(t, func(t *testing.T, kill int) bool {
		w, dir := world(t), t.TempDir()
		before := w.Snapshot()
		it := w.Wanted(Journal(t, dir))
		drift := check(t, it)
		died := killed(t, kill, func(ctx context.Context) error { return it.Apply(ctx, drift) })

		j := Journal(t, dir) // and the next config wants nothing of it any more
		it = w.Empty(j)
		restore(t, it, j)
		empty(t, it)
		if !w.OneWay {
			same(t, "system after kill, restore", before, w.Snapshot())
		}
		return died
	})
}

func killedInRestore(t *testing.T, world func(*testing.T) World) {
	everyKill(t, func(t *testing.T, kill int) bool {
		w, dir := world(t), t.TempDir()
		before := w.Snapshot()
		j := Journal(t, dir)
		apply(t, w.Wanted(j))
		it := w.Empty(j)
		left := leaving(it, j, check(t, it))
		died := killed(t, kill, func(ctx context.Context) error { return it.Restore(ctx, left) })

		j = Journal(t, dir)
		it = w.Empty(j)
		restore(t, it, j)
		empty(t, it)
		same(t, "system after kill, restore", before, w.Snapshot())
		return died
	})
}

// everyKill runs test with a kill at the first write point, the second, … until
// one run is not killed any more.
func everyKill(t *testing.T, test func(t *testing.T, kill int) bool) {
	const many = 500
	for kill := 1; ; kill++ {
		died, skipped := false, false
		ok := t.Run(fmt.Sprintf("at %d", kill), func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			died = test(t, kill)
		})
		if !ok || skipped { // it says itself what is missing
			return
		}
		if !died && kill == 1 {
			t.Fatal("the item never asked its context before a write")
		}
		if !died {
			return
		}
		if kill == many {
			t.Fatalf("still killed after %d write points", many)
		}
	}
}
