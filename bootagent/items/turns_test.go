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
