// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

// approach takes one step on the way to the act of an operation that is due. more is
// false where it has to wait. Whether its window is open was asked just before.
func (e *Engine) approach(ctx context.Context, m *spec.Maintenance, o spec.Operation, r *record, v verdict) (more bool, err error) {
	if r.Turn == nil {
		r.Turn = &turn{Step: asking, Was: r.State}
		if v.run != nil {
			r.Turn.For = v.run.Handled
		}
	}
	t := r.Turn
	if t.Boot != e.Boot || t.Over { // what was asked before a reboot is asked again; what is held is held
		t.Boot, t.Over, t.Outcome = e.Boot, false, ""
		t.to(asking)
		if err := e.save(o, *r); err != nil {
			return false, err
		}
	}
	if e.early(t) {
		return false, nil
	}
	switch t.Step {
	case asking, askAgain:
		return e.conditions(ctx, m, o, r)
	case undone:
		return e.isDone(ctx, o, r, v)
	case taking:
		return e.take(ctx, m, o, r)
	case drained, draining:
		return e.drain(ctx, o, r, v)
	}
	return true, e.begin(ctx, o, r, v)
}

// conditions asks one precondition. One that does not hold ends what was taken: others
// of the group need not wait for it.
func (e *Engine) conditions(ctx context.Context, m *spec.Maintenance, o spec.Operation, r *record) (more bool, err error) {
	t, list := r.Turn, order(o).When
	if t.Nth >= len(list) {
		if t.Step == asking {
			t.to(undone)
		} else {
			t.to(drained)
		}
		return true, e.save(o, *r)
	}
	over, why, err := e.condition(ctx, o, r, list[t.Nth])
	switch {
	case err != nil || !over:
		return false, err
	case why == "":
		t.Nth++
		return true, e.save(o, *r)
	case t.Slot != "":
		if err := e.release(ctx, m, t.Slot); err != nil {
			return false, e.hold(o, r, spec.ForSlot, fmt.Sprintf("%s; give back the slot of %s: %v", why, t.Slot, err))
		}
		t.Slot = ""
	}
	t.Step, t.Nth = asking, 0
	return false, e.hold(o, r, spec.ForPrecondition, why)
}

// condition asks a precondition, and says why it does not hold.
func (e *Engine) condition(ctx context.Context, o spec.Operation, r *record, c spec.Condition) (over bool, why string, err error) {
	switch {
	case c.Command != nil:
		over, said, err := e.ask(ctx, o, r, *c.Command)
		if said != nil {
			why = fmt.Sprintf("%s: %v", c.Command.Argv[0], said)
		}
		return over, why, err
	case c.Unit != "" && e.Units == nil:
		return true, "systemd does not run here: nothing is known of " + c.Unit, nil
	case c.Unit != "":
		state, _, err := e.Units.State(ctx, c.Unit)
		if err != nil {
			return true, err.Error(), nil
		}
		if state != "active" {
			why = c.Unit + " is not active"
		}
		return true, why, nil
	}
	name := c.File + c.Absent
	within := cmp.Or(e.fileTime, 10*time.Second)
	asking, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s: no answer within %v", name, within))
	defer cancel()
	err = stall.Within(asking, "look at "+name, func() error { _, err := os.Lstat(filepath.Join(e.Root, name)); return err })
	switch {
	case err != nil && ctx.Err() != nil:
		return false, "", ctx.Err()
	case err == nil && c.Absent != "":
		return true, name + " exists", nil
	case errors.Is(err, os.ErrNotExist) && c.File != "":
		return true, name + " does not exist", nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return true, err.Error(), nil
	}
	return true, "", nil
}

// isDone asks whether there is anything to do, before others have to wait for it.
func (e *Engine) isDone(ctx context.Context, o spec.Operation, r *record, v verdict) (more bool, err error) {
	if o.Check == nil {
		r.Turn.to(taking)
		return true, e.save(o, *r)
	}
	over, said, err := e.ask(ctx, o, r, *o.Check)
	switch {
	case err != nil || !over:
		return false, err
	case said != nil && saysNo(said):
		r.Turn.to(taking)
		return true, e.save(o, *r)
	}
	r.begun(e, v)
	r.Phase = checking
	return true, e.end(o, r, said)
}

// take asks for a slot. That it may be held is on disk before.
func (e *Engine) take(ctx context.Context, m *spec.Maintenance, o spec.Operation, r *record) (more bool, err error) {
	t, group := r.Turn, order(o).Slot
	other, err := e.occupied(o)
	switch {
	case err != nil:
		return false, err
	case other != "" && isSwap(o):
		return false, e.hold(o, r, spec.ForTurn, other+" runs, or has its turn")
	case other != "":
		return false, e.hold(o, r, spec.ForTurn, other+" disturbs this node")
	case group == "":
		t.to(askAgain)
		return true, e.save(o, *r)
	case e.Slots == nil:
		return false, e.hold(o, r, spec.ForSlot, errNoSlots.Error())
	case !e.Remembers && !e.steadied():
		return false, e.hold(o, r, spec.ForSlot, "the slots of the boot before are not given back yet")
	}
	s, ok := m.Slots[group]
	if !ok {
		return false, e.hold(o, r, spec.ForSlot, "the group "+group+" is not published")
	}
	t.Slot = group
	if err := e.save(o, *r); err != nil {
		return false, err
	}
	if err := e.Slots.Take(ctx, group, s); err != nil {
		return false, e.hold(o, r, spec.ForSlot, fmt.Sprintf("slot of %s: %v", group, err))
	}
	e.Record("took a slot", o, group)
	t.to(askAgain)
	return true, e.save(o, *r)
}

// occupied returns the name of another operation that has something taken, or runs.
func (e *Engine) occupied(o spec.Operation) (string, error) {
	for _, other := range e.known {
		if other.ID == o.ID || !disturbs(other) && !isSwap(o) { // a reboot ends whatever runs
			continue
		}
		switch r, err := e.load(other); {
		case err != nil:
			return "", err
		case r.State == spec.OperationRunning, r.Turn.holds():
			return other.Name, nil
		}
	}
	return "", nil
}

// drain takes work off the node, unless another did: then it is left to that one.
func (e *Engine) drain(ctx context.Context, o spec.Operation, r *record, v verdict) (more bool, err error) {
	t, d := r.Turn, order(o).Drain
	if d == nil || t.Step == drained && t.Drained {
		t.to(ready)
		if t.Drained && d != nil {
			t.to(draining) // begun before a crash
		}
		return true, e.save(o, *r)
	}
	c := d.Check
	if t.Step == draining {
		c = d.Exec
	}
	over, said, err := e.ask(ctx, o, r, c)
	switch {
	case err != nil || !over:
		return false, err
	case said == nil:
		t.to(ready)
		return true, e.save(o, *r)
	case t.Step == drained && saysNo(said):
		t.to(draining)
		t.Drained = true
		return true, e.save(o, *r)
	}
	r.begun(e, v)
	return true, e.end(o, r, fmt.Errorf("drain: %w", said))
}

// begun notes an attempt that ends before its act.
func (r *record) begun(e *Engine, v verdict) {
	if v.run != nil {
		r.Handled, r.Missed = v.run.Handled, v.run.Missed
	}
	if v.fresh {
		r.Attempts = 0
	}
	r.Attempts++
	r.Phase, r.Boot, r.Asked, r.Began = acting, e.Boot, "", e.Now().UTC()
}

// steady gives back the slots of the boot before, where nothing is remembered of it:
// once a boot, when the node is well.
func (e *Engine) steady(ctx context.Context, m *spec.Maintenance) error {
	counted := map[string]*spec.Maintenance{}
	if e.Swap != nil && e.Swap.Maintenance != nil {
		for group := range e.Swap.Maintenance.Slots {
			counted[group] = e.Swap.Maintenance
		}
	}
	if m != nil {
		for group := range m.Slots {
			counted[group] = m
		}
	}
	if e.Remembers || len(counted) == 0 || e.Slots == nil || e.steadied() {
		return nil
	}
	switch how, _ := e.judge(ctx, filepath.Join(e.Dir, "gates")); how {
	case Judging:
		return nil
	case Unwell:
		return nil // the status says so; the slots stay with this node
	}
	for _, group := range slices.Sorted(maps.Keys(counted)) {
		if err := e.release(ctx, counted[group], group); err != nil {
			return fmt.Errorf("give back the slot of the boot before: %w", err)
		}
	}
	return e.noteSteady()
}
