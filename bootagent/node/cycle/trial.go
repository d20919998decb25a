// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/decide/run"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/spec"
)

// await leaves a change to its operator.
func (c *Cycle) await(ctx context.Context, next *track.Found, result items.Result) (*spec.Status, error) {
	c.RecordChanges(result, next.Generation.Generation, fmt.Sprint("generation ", next.Generation.Generation))
	if err := c.Effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	within := next.Overlay.Confirm.Within
	err := c.Owner.Commit(record.Change{Urgent: record.Word, State: func(s *state.State) {
		s.Trial.Ends = int64((c.Up()+time.Second-1)/time.Second) + within
	}})
	if err != nil {
		return nil, errors.Join(err, c.unkept(ctx, err))
	}
	c.Say("generation %d is undone unless 'caisson-agent confirm' is called within %d s", next.Generation.Generation, within)
	if err := c.Owner.Note(func(l *state.Live) { l.TakenBack = nil }); err != nil {
		return nil, err
	}
	return c.Look.Report(next, result)
}

// undoForGood undoes a change that cut the node off.
func (c *Cycle) undoForGood(ctx context.Context, t probed, why string) (*spec.Status, error) {
	if _, err := c.cycle(ctx, undone{why: why, doubt: true}); err != nil {
		return nil, err
	}
	failed := fmt.Errorf("generation %d was undone: after it %w", t.next.Generation.Generation, t.fault)
	if err := c.SetSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: %s", t.next.Generation.Generation, why)); err != nil {
		return nil, errors.Join(failed, err)
	}
	found, err := c.Effect.Running()
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	status, err := c.Look.Report(found, c.Effect.Look(ctx, found))
	return status, errors.Join(failed, err)
}

// undo takes the change on trial back. Without a reason, the generation is not held
// against itself.
func (c *Cycle) undo(ctx context.Context, reason string) error {
	_, err := c.cycle(ctx, undone{why: reason})
	return err
}

// undone is a change on trial that is to be undone.
type undone struct {
	why   string // "" where it is not the change's fault
	doubt bool   // the registry was not reached
}

func (e undone) facts(c *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Undo, c.Effect.Runs(now.State)
	f.Undo = decide.Fault{Reason: e.why, WayBack: c.Effect.WayBack(now.State) != nil}
	return nil
}

func (e undone) act(ctx context.Context, c *Cycle, now record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.Forget, decide.Withhold, decide.Restore:
		return nil, nil, c.Effect.PutTrialBack(ctx, now.State, e.why, e.doubt, step)
	}
	return noAct(step)
}

// starting is a root that comes up, on which no service has started.
type starting struct {
	next *track.Found
	when spec.When
}

func (e starting) facts(c *Cycle, now record.Snapshot, f *decide.Facts) error {
	f.Event, f.Runs = decide.Early, c.Effect.Runs(now.State)
	is, err := c.Operations.Phase(now.State, f.Runs)
	f.Prior = c.Starts.Prior(now.State, e.next, is.Phase != run.Entering, e.when)
	return err
}

func (e starting) act(ctx context.Context, c *Cycle, _ record.Snapshot, step decide.Step) (event, *spec.Status, error) {
	switch step.Act {
	case decide.None:
		return nil, nil, nil
	case decide.LeaveOut, decide.Set, decide.SetHarmless, decide.SetOnTrial:
		return nil, nil, c.Starts.Set(ctx, e.next, step)
	}
	return noAct(step)
}
