// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// queue is a kind of keys that are due until they are applied, which fails for those named.
type queue struct {
	item.Item
	due, fail []string
}

func (*queue) Name() string { return exec.Name }
func (*queue) Wanted() int  { return 2 }

func (s *queue) Check(context.Context) (drift []spec.Drift, err error) {
	for _, key := range s.due {
		drift = append(drift, spec.Drift{Item: exec.Name, Key: key, Action: spec.ActionRun})
	}
	return drift, nil
}

func (s *queue) Apply(_ context.Context, drift []spec.Drift) (err error) {
	for _, d := range drift {
		if slices.Contains(s.fail, d.Key) {
			err = errors.New("it failed")
			continue
		}
		s.due = slices.DeleteFunc(s.due, func(key string) bool { return key == d.Key })
	}
	return err
}

// counts is a guard that corrects everything.
type counts struct{ corrected, undone []string }

func (*counts) Judge(d spec.Drift, _ bool) spec.Drift  { return d }
func (*counts) Held(string, []spec.Drift) []spec.Drift { return nil }
func (c *counts) Undone(d spec.Drift)                  { c.undone = append(c.undone, d.Key) }
func (c *counts) Correct(due []spec.Drift) error {
	for _, d := range due {
		c.corrected = append(c.corrected, d.Key)
	}
	return nil
}

// A correction that failed is taken back whatever the turns after it do.
func TestEachTurnIsCounted(t *testing.T) {
	for _, fail := range [][]string{{"a"}, {"c"}, {"a", "c"}, nil} {
		g := new(counts)
		r := newRun([]item.Item{&queue{due: []string{"a", "b", "c"}, fail: fail}}, nil)
		r.guard, r.known = g, map[wish]bool{{item: exec.Name, key: "a"}: true, {item: exec.Name, key: "c"}: true}
		r.preflight(t.Context())
		r.apply(t.Context())
		r.result(t.Context())
		if !slices.Equal(g.corrected, []string{"a", "c"}) || !slices.Equal(g.undone, fail) {
			t.Errorf("%v fail: corrected %v, taken back %v", fail, g.corrected, g.undone)
		}
	}
}

// built is a kind of one thing that leaves when what was built on it has left.
type built struct {
	item.Item
	name  string
	on    *built
	there bool
}

func (b *built) Name() string { return b.name }
func (*built) Wanted() int    { return 0 }

func (b *built) Check(context.Context) (drift []spec.Drift, err error) {
	if b.there {
		drift = append(drift, spec.Drift{Item: b.name, Key: "x", From: "1", Action: spec.ActionRemove})
	}
	return drift, nil
}

func (*built) Apply(context.Context, []spec.Drift) error { return nil }

func (b *built) Restore(context.Context, []item.Entry) error {
	if b.on != nil && b.on.there {
		return errors.New("it is in use")
	}
	b.there = false
	return nil
}

// Swap space in a file that a script made is put to use after the script ran, and leaves before it
// is taken back, in one pass.
func TestWhatWasBuiltOnALaterKindLeaves(t *testing.T) {
	for _, kept := range []bool{false, true} {
		space := &built{name: "swaps", there: true, on: &built{there: kept}}
		script := &built{name: exec.Name, there: true, on: space}
		r := Reconcile(t.Context(), []item.Item{space, script}, itemtest.Journal(t, t.TempDir()))
		if kept != (r.Err != nil) || space.there != kept || script.there != kept || len(r.Changes) != 2 && !kept {
			t.Errorf("in use %t: %v, changes %v", kept, r.Err, r.Changes)
		}
	}
}
