// SPDX-License-Identifier: Apache-2.0

// Package cycle reads what a decision depends on, asks package decide, and does what was
// decided, until an act is the last one. Each act notes what it is about to do before it
// does it, so that a cut at any point ends with what ran before.
//
//	t := &turn{event: decide.Answer}   what is asked
//	look(t) -> Facts                   facts.go: reads, changes nothing
//	decide.Next(Facts) -> Step         pure, one table
//	act(t, Step)                       cycle.go: one case an act; change.go, trial.go, back.go
package cycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/destination"
	"github.com/caisson-os/caisson/bootagent/early"
	"github.com/caisson-os/caisson/bootagent/effect"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/hold"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/look"
	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/operate"
	"github.com/caisson-os/caisson/bootagent/protect"
	"github.com/caisson-os/caisson/bootagent/services"
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/bootagent/soak"
	"github.com/caisson-os/caisson/bootagent/stacked"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Cycle is that of an open node.
type Cycle struct {
	*session.Session
	root        *stacked.Root
	services    *services.Services
	effect      *effect.Effect
	destination *destination.Destination
	soak        *soak.Soak
	operate     *operate.Operations
	holds       *hold.Holds
	look        *look.Look
	protect     *protect.Protection
	early       *early.Early
}

// New returns the cycle of an open node.
func New(e *effect.Effect, root *stacked.Root, services *services.Services, d *destination.Destination, s *soak.Soak, o *operate.Operations, h *hold.Holds, l *look.Look, p *protect.Protection) *Cycle {
	return &Cycle{e.Session, root, services, e, d, s, o, h, l, p, early.New(e, s)}
}

// turn is what one decision is about, and what came of the last act. Which of it is set
// depends on the event, see package decide.
type turn struct {
	event  decide.Event
	before *track.Found // what runs; of Judged what ran well before; nil where that is nothing
	next   *track.Found // what is offered, made, in effect or judged
	fault  error        // of Answer why nothing was had, of Probed why the registry was not reached
	why    string       // of Undo
	doubt  bool         // of Undo: the registry was not reached

	comesUp bool         // this root comes up with next
	trial   *state.Trial // of Made
	kept    spec.Items   // of Try: how that is set which can cut the node off
	result  items.Result
	returns bool // of Made: an operator goes back to next, which waits for nothing
	keeps   bool // of Effect: next was kept in effect
	applied bool // of Effect: a run has applied next
	rests   bool // of Effect: next says that nothing is to be changed
	reach   bool // of Effect: next has to reach the registry, too
	judged  *soak.Judged
	cutOff  bool // of Judged: what failed is that its boot does not reach the registry

	status *spec.Status
	wait   time.Duration // of Judged: until the next look, 0 where nothing is judged any more
}

// maxSteps is many times what a turn takes: one that takes more finds again and again what it
// has just acted on.
const maxSteps = 32

// cycle decides and acts, until an act is the last one.
func (c *Cycle) cycle(ctx context.Context, t *turn) error {
	var last string
	for range maxSteps {
		f, err := c.facts(ctx, t)
		if err != nil {
			return err
		}
		step := c.Options.Decided.Next(f)
		if step.Act.Changes() {
			metrics.CountTransition(&c.Boot.Live.Counts, step.Name)
		}
		before := c.Transition
		c.Transition = step.Name
		ends, err := c.act(ctx, t, step)
		c.Transition = before
		if ends || err != nil {
			return err
		}
		last = step.Name
	}
	return fmt.Errorf("%d decisions led to no end, the last one was %s", maxSteps, last)
}

// act does what was decided, and says what the next decision follows. It reports whether
// there is none.
func (c *Cycle) act(ctx context.Context, t *turn, step decide.Step) (last bool, err error) {
	switch step.Act {
	case decide.PutBack:
		return false, c.undoFor(ctx, t, step)
	case decide.Follow:
		return false, c.holds.Expire()
	case decide.Arrive:
		s, err := c.Folder.Load()
		if err != nil {
			return false, err
		}
		return false, c.root.Arrive(*s.Current)
	case decide.Go, decide.None:
		return true, nil
	case decide.LeaveOut, decide.Set, decide.SetHarmless, decide.SetOnTrial:
		return true, c.early.Set(ctx, t.next, step)
	case decide.Afresh:
		return false, errors.Join(c.undo(ctx, ""), c.turnTo(t, decide.Look))

	case decide.Stop:
		return true, cmp.Or(t.fault, error(track.ErrNothing))
	case decide.Report:
		t.status, err = c.look.Status(ctx)
		return true, errors.Join(t.fault, err)
	case decide.Decline:
		c.SetSync(spec.SyncBehind, destination.RejectedText(t.next.Generation, step.Why))
		if err := c.Remember(); err != nil {
			return false, err
		}
		return false, c.turnTo(t, decide.Look)
	case decide.Take:
		if err := c.cycle(ctx, &turn{event: decide.Effect, next: t.next}); err != nil {
			return false, err
		}
		return false, c.turnTo(t, decide.Look)
	case decide.LookNow:
		return false, c.turnTo(t, decide.Look)

	case decide.Watch:
		t.status, err = c.watchOnly(ctx, t.before, step.Why)
		return true, err
	case decide.Keep:
		if err := c.prepare(ctx, t.before); err != nil {
			return true, err
		}
		t.status, err = c.enforce(ctx, t.before)
		return true, err
	case decide.Return:
		c.RecordStep("returning", events.With("why", step.Why))
		c.Note(t.before.Generation, nil, spec.Event{Event: spec.EventLeft, Transition: step.Name, Why: step.Why, Did: "starts the machine over into what proved itself"})
		class, why, err := c.destination.Reboot(ctx)
		c.Say("%s; going back by a %s: %s", step.Why, class, why)
		if err == nil {
			t.status, err = c.look.Status(ctx)
		}
		return true, err
	case decide.ComeUp:
		if err := c.prepare(ctx, t.before); err != nil {
			return true, err
		}
		if err := c.TryAgain(t.before.Generation); err != nil { // it is tried all the same: this root has nothing else
			c.Say("%v", err)
		}
		t.event, t.next, t.comesUp = decide.Try, t.before, true
		return false, nil

	case decide.Wait:
		if err := c.effect.TakeOver(); err != nil {
			return true, err
		}
		if err := c.look.Wait(t.next, step.Why); err != nil {
			return true, err
		}
		if t.before == nil { // there is no status of nothing
			return true, fmt.Errorf("nothing that verifies runs here, and generation %d waits for %s", t.next.Generation.Generation, step.Why)
		}
		t.status, err = c.look.Status(ctx)
		return true, err
	case decide.Rest:
		t.status, err = c.applyPause(ctx, t.next, step.Why)
		return true, err
	case decide.Change:
		if err := c.prepare(ctx, t.next); err != nil {
			return true, err
		}
		t.event = decide.Try
		return false, nil

	case decide.ApplyUntested:
		c.RecordStep("untested", events.With("generation", t.next.Generation.Generation), events.With("why", step.Why))
		c.Say("what could cut this node off is applied untested: %s", step.Why)
		t.status, err = c.enforce(ctx, t.next)
		return true, err
	case decide.TryForOperator, decide.TryForReach, decide.Plain:
		return c.try(ctx, t, step)

	case decide.Leave:
		t.status, err = c.leaveToBoot(ctx, t.next, t.result.Err)
		return true, err
	case decide.RetryLater, decide.Postpone, decide.Blame:
		t.status, err = c.takenBack(ctx, t, step)
		return true, err
	case decide.Await:
		t.status, err = c.await(ctx, t.next, t.result)
		return true, err
	case decide.Probe:
		t.event, t.fault = decide.Probed, c.Reached(ctx, c.Within())
		return false, nil
	case decide.Settle:
		t.status, err = c.moved(ctx, t.next, t.result)
		return true, err
	case decide.Compare:
		t.event, t.fault = decide.Doubted, c.Reached(ctx, c.Within())
		return false, nil
	case decide.Convict, decide.Absolve:
		t.event, t.fault = decide.Begin, nil
		return false, c.soak.Compared(step.Act == decide.Absolve, step.Why)

	case decide.UndoAndRetry:
		return true, errors.Join(ctx.Err(), c.undo(ctx, ""))
	case decide.UndoForGood:
		t.status, err = c.undoForGood(ctx, t, step.Why)
		return true, err

	case decide.Forget, decide.Withhold, decide.Restore:
		return true, c.putTrialBack(ctx, t, step)

	case decide.Renumber:
		if a := c.Boot.Live.Applied; a == nil || !a.Same(t.next.Generation) {
			c.Boot.Live.Applied = &t.next.Generation
			return true, c.Remember()
		}
		return true, nil
	case decide.Unarm:
		return true, c.EndDeadline()
	case decide.Prove:
		if err := c.promote(t.next.Generation, step.Why); err != nil || t.event != decide.Judged {
			return true, err
		}
		t.status, err = c.look.Status(ctx)
		return true, err
	case decide.Soak:
		return true, c.soak.BeginGates(ctx, t.next.Generation, t.reach)

	case decide.Later:
		t.wait = again
		if step.Why != "" {
			c.Say("a gate failed, and nothing is changed now: %s", step.Why)
			return true, nil
		}
		t.wait = c.soak.NextLook(t.judged)
		t.status, err = c.look.Status(ctx)
		return true, err
	case decide.BackLive, decide.BackBoot:
		return c.goBack(ctx, t, step)
	case decide.Stay:
		return true, c.remainBroken(ctx, t)
	}
	return true, fmt.Errorf("%s: no act %q", step.Name, step.Act) // TestEveryActIsDone
}

// undoFor undoes the change on trial. Where nobody has just asked the registry, what the node
// runs is older than what it has accepted from then on.
func (c *Cycle) undoFor(ctx context.Context, t *turn, step decide.Step) (err error) {
	s, err := c.Folder.Load()
	if err != nil {
		return err
	}
	tried := s.Trial.Generation.Generation
	if err := c.undo(ctx, step.Why); err != nil {
		return err
	}
	if t.event == decide.Answer {
		t.before, err = c.effect.Running()
		return err
	}
	c.SetSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: %s", tried, step.Why))
	return c.Remember()
}

// turnTo goes on with what runs.
func (c *Cycle) turnTo(t *turn, e decide.Event) (err error) {
	t.event, t.next, t.fault, t.comesUp = e, nil, nil, false
	t.before, err = c.effect.Found()
	return err
}

// Settle ends what was left unfinished, and may have gone wrong, while nobody looked.
func (c *Cycle) Settle(ctx context.Context) error {
	if c.Tracker == nil {
		return nil
	}
	return c.cycle(ctx, &turn{event: decide.Begin})
}

// Apply reconciles the node with the overlay it runs. A generation that was
// staged for this boot is promoted: it came up and was applied.
func (c *Cycle) Apply(ctx context.Context) (*spec.Status, error) {
	if c.Tracker == nil {
		return nil, c.Unbound
	}
	if err := c.Settle(ctx); err != nil {
		return nil, err
	}
	t := new(turn)
	if err := c.turnTo(t, decide.Look); err != nil {
		return nil, err
	}
	st, err := c.outcome(t, c.cycle(ctx, t))
	if err == nil {
		err = c.early.Follow()
	}
	return st, err
}

// Early sets what of the overlay that this root runs is to be there before services start.
func (c *Cycle) Early(ctx context.Context) error {
	found, err := c.effect.Found()
	if err != nil || found == nil {
		return err
	}
	return c.cycle(ctx, &turn{event: decide.Early, next: found})
}

// outcome is what a turn ended in. What failed as a root came up is not an error: the node goes
// on, and its status says how.
func (c *Cycle) outcome(t *turn, err error) (*spec.Status, error) {
	if t.comesUp && t.status != nil && err != nil {
		c.Say("%v", err)
		err = nil
	}
	return t.status, err
}

// Sync asks for a newer generation and applies it when the running root can take
// it, all of it or nothing. What needs another root is staged for the next boot.
// A refusal changes nothing: the node goes on as it is. So does a change that
// fails; then there is a status and an error.
func (c *Cycle) Sync(ctx context.Context) (*spec.Status, error) {
	if c.Tracker == nil {
		return nil, c.Unbound
	}
	st, err := c.sync(ctx)
	c.destination.FreeMemory()           // what waits may be another layer now
	if c.Options.By != session.Service { // who asks by hand leaves a trace, whatever comes of it
		c.Record("asked", events.With("sync", c.Boot.Sync), events.With("why", c.Boot.SyncDetail))
	}
	return st, err
}

func (c *Cycle) sync(ctx context.Context) (*spec.Status, error) {
	if err := c.Settle(ctx); err != nil {
		return nil, err
	}
	t := &turn{event: decide.Answer}
	var err error
	if t.before, err = c.effect.Found(); err != nil { // the keys were changed, or the disk was: what the registry has may still be good
		c.Say("the running overlay is missing or no longer verifies: %v", err)
	}
	t.next, t.fault = c.Tracker.Sync(ctx)
	c.Boot.Live.Asked = time.Now().Unix()
	metrics.CountFetch(&c.Boot.Live.Counts, t.fault, time.Now())
	if t.fault != nil {
		t.next = nil
		if refusal.Of(t.fault) != "" {
			c.Note(state.Generation{}, t.fault, spec.Event{Event: spec.EventRefused, Did: "goes on with what it has"})
		}
		c.SetSync(track.Describe(t.fault))
	} else {
		if err := errors.Join(c.destination.NoteHad(t.next), c.destination.ForThisRoot(ctx, t.before, t.next)); err != nil {
			return nil, err
		}
		c.SetSync(c.destination.Axis(t.next))
		same := t.before != nil && t.before.Generation.Overlay == t.next.Generation.Overlay
		if same || t.next.Unchanged { // the publisher took back what could not be applied
			c.Boot.Live.TakenBack = nil
		}
	}
	if err := c.Remember(); err != nil {
		return nil, errors.Join(t.fault, err)
	}
	return c.outcome(t, c.cycle(ctx, t))
}

// prepare does what comes before a run that changes something.
func (c *Cycle) prepare(ctx context.Context, found *track.Found) error {
	if err := c.effect.TakeOver(); err != nil {
		return err
	}
	c.services.Bring(ctx, &found.Overlay)
	return nil
}

// watchOnly looks at a node on which nothing is to be changed now.
func (c *Cycle) watchOnly(ctx context.Context, found *track.Found, why string) (*spec.Status, error) {
	c.Say("nothing is changed now: %s", why)
	result := c.effect.Look(ctx, found)
	if err := c.effect.Counted(c.effect.Corrections().Save()); err != nil {
		return nil, err
	}
	return c.look.Report(found, result)
}

// enforce makes the node as an overlay says.
func (c *Cycle) enforce(ctx context.Context, found *track.Found) (*spec.Status, error) {
	guard := c.effect.Guard(found)
	keep := func(ctx context.Context) items.Result {
		return items.Keep(ctx, c.effect.Items(found), c.Journal, guard)
	}
	result := c.effect.LookAt(ctx, found, keep)
	c.services.Note(&found.Overlay)
	c.RecordChanges(result, found.Generation.Generation, c.effect.Cause(guard != nil))
	remember := func() error { return c.effect.Counted(c.effect.Corrections().Keep(found.Generation.Overlay)) }
	if guard == nil {
		remember = func() error { return c.effect.Counted(c.effect.Corrections().Begin(found.Generation.Overlay)) }
	}
	if err := remember(); err != nil {
		return nil, err
	}
	if err := c.effect.Retire(ctx, result); err != nil {
		return nil, err
	}
	if err := c.cycle(ctx, &turn{event: decide.Effect, next: found, result: result, applied: true, keeps: true}); err != nil {
		return nil, err
	}
	return c.look.Report(found, result)
}
