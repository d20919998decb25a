// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/destination"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// goBack undoes a change that did not pass its gates. That it was rejected is on disk before
// anything is done, so that a cut at any point ends with what ran before. What was
// rejected is not tried again until somebody says so. Where the disk does not take that, it
// reports that it is to be decided again: over which ways back it lasts is another matter.
func (c *Cycle) goBack(ctx context.Context, t *turn, step decide.Step) (last bool, err error) {
	s, err := c.Folder.Load()
	if err != nil {
		return true, err
	}
	failed, good, why := t.next.Generation, t.before, t.why
	kept := c.Folder.Unsaved() == nil
	if t.cutOff {
		s.Doubt(failed)
	}
	s.GoBack(failed, good.Generation, why, time.Now(), c.root.LayersHere(s)...)
	if err := c.Folder.SaveVerdict(s); err != nil {
		return true, err
	}
	way := c.destination.WayBack(ctx, step.Act == decide.BackLive)
	if kept && c.Folder.Unsaved() != nil {
		return false, nil
	}
	c.RecordStep("gate-failed", events.With("generation", failed.Generation), events.With("overlay", failed.Overlay), events.With("back", good.Generation.Generation), events.With("by-way-of", way), events.With("why", why))
	c.Note(failed, nil, spec.Event{Event: spec.EventGateFailed, Transition: c.Transition, Why: why, Did: fmt.Sprintf("goes back to %s (%s), and does not try it again", c.destination.NameBeside(good.Generation, failed), way), Console: blackbox.Console(session.Kmsg)})
	c.SetSync(spec.SyncBehind, destination.RejectedText(failed, why))
	if step.Act == decide.BackLive {
		t.status, err = c.backLive(ctx, good, failed, why)
		return true, err
	}
	c.Boot.Live.Stuck = ""
	if err := c.Remember(); err != nil {
		return true, err
	}
	class, reason, err := c.destination.Reboot(ctx)
	c.Say("%s did not pass its gates: %s; going back to %s by a %s: %s", c.destination.NameBeside(failed, good.Generation), why, c.destination.NameBeside(good.Generation, failed), class, reason)
	t.wait = again
	return true, err
}

// backLive puts in effect again what ran before.
func (c *Cycle) backLive(ctx context.Context, good *track.Found, failed state.Generation, why string) (*spec.Status, error) {
	c.Boot.Live.Applied, c.Boot.Live.Stuck = &good.Generation, ""
	if err := c.Remember(); err != nil {
		return nil, err
	}
	if err := durable.Remove(c.Path(paths.RunGates)); err != nil {
		return nil, err
	}
	c.services.Bring(ctx, &good.Overlay)
	result, err := c.effect.PutBack(context.WithoutCancel(ctx), good, failed)
	if err != nil {
		return nil, err
	}
	c.services.Note(&good.Overlay)
	c.RecordChanges(result, good.Generation.Generation, fmt.Sprintf("generation %d did not pass its gates", failed.Generation))
	c.Say("generation %d did not pass its gates: %s; generation %d is in effect again", failed.Generation, why, good.Generation.Generation)
	if err := errors.Join(c.effect.Retire(ctx, result), c.EndDeadline()); err != nil {
		return nil, err
	}
	return c.look.Report(good, result)
}

// remainBroken leaves in effect what failed: there is nothing better. It is looked at from the
// start, and counts as good when it holds after all.
func (c *Cycle) remainBroken(ctx context.Context, t *turn) error {
	j, why := t.judged, t.why
	if c.Boot.Live.Stuck != why {
		c.RecordStep("gate-failed", events.With("generation", j.Found.Generation.Generation), events.With("by-way-of", "none"), events.With("why", why))
		c.Note(j.Found.Generation, nil, spec.Event{Event: spec.EventGateFailed, Transition: c.Transition, Why: why, Did: "goes on with it: there is nothing better", Console: blackbox.Console(session.Kmsg)})
		c.Boot.Live.Stuck = why
		if err := c.Remember(); err != nil {
			return err
		}
	}
	looked := j.Record.Checks
	j.Record.Checks = map[string]gate.Progress{}
	for name, p := range looked {
		j.Record.Checks[name] = gate.Progress{Looked: p.Looked, Why: p.Why}
	}
	if err := j.Record.Save(c.Path(paths.RunGates)); err != nil {
		return err
	}
	var err error
	t.wait = c.soak.NextLook(j)
	t.status, err = c.look.Status(ctx)
	return err
}

// promote makes a generation that is in effect the current one.
func (c *Cycle) promote(g state.Generation, why string) error {
	fields := []events.Field{events.With("generation", g.Generation), events.With("epoch", g.Epoch), events.With("overlay", g.Overlay), events.With("why", why)}
	if g.IsAhead() {
		fields = append(fields, events.With("on", g.Layer), events.With("waits", g.Waits))
	}
	c.RecordStep("promoted", fields...)
	var now *state.State
	err := c.Kept.Commit(record.Change{State: func(s *state.State) {
		g.Unread = c.soak.Unread(s, g)
		s.Prove(g, c.root.LayersHere(s)...)
		now = s
	}})
	if err != nil {
		return err
	}
	c.destination.Tidy(now)
	return c.soak.EndGates()
}
