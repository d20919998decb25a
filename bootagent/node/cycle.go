// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// turn is what one decision is about, and what came of the last act. Which of it is set
// depends on the event, see package decide.
type turn struct {
	event  decide.Event
	before *track.Found // what runs; of Judged what ran well before; nil where that is nothing
	next   *track.Found // what is offered, made, in effect or judged
	fault  error        // of Answer why nothing was had, of Probed why the registry was not reached
	why    string       // of Undo

	comesUp bool         // this root comes up with next
	trial   *state.Trial // of Made
	kept    spec.Items   // of Try: how that is set which can cut the node off
	result  items.Result
	returns bool // of Made: an operator goes back to next, which waits for nothing
	keeps   bool // of Effect: next was kept in effect
	applied bool // of Effect: a run has applied next
	rests   bool // of Effect: next says that nothing is to be changed
	judged  *judged

	status *spec.Status
	wait   time.Duration // of Judged: until the next look, 0 where nothing is judged any more
}

// maxSteps is many times what a turn takes: one that takes more finds again and again what it
// has just acted on.
const maxSteps = 32

// cycle decides and acts, until an act is the last one.
func (n *Node) cycle(ctx context.Context, t *turn) error {
	var last string
	for range maxSteps {
		f, err := n.look(ctx, t)
		if err != nil {
			return err
		}
		step := decide.Next(f)
		if n.o.Decided != nil {
			n.o.Decided(f, step)
		}
		before := n.decided
		n.decided = step.Name
		ends, err := n.act(ctx, t, step)
		n.decided = before
		if ends || err != nil {
			return err
		}
		last = step.Name
	}
	return fmt.Errorf("%d decisions led to no end, the last one was %s", maxSteps, last)
}

// act does what was decided, and says what the next decision follows. It reports whether
// there is none.
func (n *Node) act(ctx context.Context, t *turn, step decide.Step) (last bool, err error) {
	switch step.Act {
	case decide.PutBack:
		return false, n.undoFor(ctx, t, step)
	case decide.Follow:
		return false, n.endHold()
	case decide.Arrive:
		s, err := n.folder.Load()
		if err != nil {
			return false, err
		}
		return false, n.arrive(*s.Current)
	case decide.Go, decide.None:
		return true, nil

	case decide.Stop:
		return true, cmp.Or(t.fault, error(track.ErrNothing))
	case decide.Report:
		t.status, err = n.Status(ctx)
		return true, errors.Join(t.fault, err)
	case decide.Decline:
		n.setSync(spec.SyncBehind, rejectedText(t.next.Generation, step.Why))
		if err := n.remember(); err != nil {
			return false, err
		}
		return false, n.turnTo(t, decide.Look)
	case decide.Take:
		if err := n.cycle(ctx, &turn{event: decide.Effect, next: t.next}); err != nil {
			return false, err
		}
		return false, n.turnTo(t, decide.Look)
	case decide.LookNow:
		return false, n.turnTo(t, decide.Look)

	case decide.Watch:
		t.status, err = n.watchOnly(ctx, t.before, step.Why)
		return true, err
	case decide.Keep:
		if err := n.prepare(ctx, t.before); err != nil {
			return true, err
		}
		t.status, err = n.enforce(ctx, t.before)
		return true, err
	case decide.Return:
		class, why, err := n.Reboot(ctx)
		n.say("%s; going back by a %s: %s", step.Why, class, why)
		if err == nil {
			t.status, err = n.Status(ctx)
		}
		return true, err
	case decide.ComeUp:
		if err := n.prepare(ctx, t.before); err != nil {
			return true, err
		}
		if err := n.tryAgain(t.before.Generation); err != nil { // it is tried all the same: this root has nothing else
			n.say("%v", err)
		}
		t.event, t.next, t.comesUp = decide.Try, t.before, true
		return false, nil

	case decide.Wait:
		if err := n.takeOver(); err != nil {
			return true, err
		}
		if err := n.wait(t.next, step.Why); err != nil || t.before == nil {
			return true, err
		}
		t.status, err = n.Status(ctx)
		return true, err
	case decide.Rest:
		t.status, err = n.rest(ctx, t.next, step.Why)
		return true, err
	case decide.Change:
		if err := n.prepare(ctx, t.next); err != nil {
			return true, err
		}
		t.event = decide.Try
		return false, nil

	case decide.Untested:
		n.say("what could cut this node off is applied untested: %s", step.Why)
		t.status, err = n.enforce(ctx, t.next)
		return true, err
	case decide.ForWord, decide.ForReach, decide.Plain:
		return n.try(ctx, t, step)

	case decide.Leave:
		t.status, err = n.leaveToBoot(ctx, t.next, t.result.Err)
		return true, err
	case decide.Excuse, decide.Postpone, decide.Blame:
		t.status, err = n.takenBack(ctx, t, step)
		return true, err
	case decide.Await:
		t.status, err = n.await(ctx, t.next, t.result)
		return true, err
	case decide.Probe:
		t.event, t.fault = decide.Probed, n.reached(ctx, n.within())
		return false, nil
	case decide.Settle:
		t.status, err = n.moved(ctx, t.next, t.result)
		return true, err
	case decide.Forgive:
		return true, errors.Join(ctx.Err(), n.undo(ctx, ""))
	case decide.Condemn:
		t.status, err = n.condemn(ctx, t, step.Why)
		return true, err

	case decide.Forget, decide.Withhold, decide.Restore:
		return true, n.putTrialBack(ctx, t.why, step)

	case decide.Renumber:
		if a := n.boot.Live.Applied; a == nil || !a.Same(t.next.Generation) {
			n.boot.Live.Applied = &t.next.Generation
			return true, n.remember()
		}
		return true, nil
	case decide.Unarm:
		return true, n.endDeadline()
	case decide.Prove:
		if err := n.pass(t.next.Generation, step.Why); err != nil || t.event != decide.Judged {
			return true, err
		}
		t.status, err = n.Status(ctx)
		return true, err
	case decide.Soak:
		return true, n.beginGates(t.next.Generation)

	case decide.Later:
		t.wait = again
		if step.Why != "" {
			n.say("a gate failed, and nothing is changed now: %s", step.Why)
			return true, nil
		}
		t.wait = n.nextLook(t.judged)
		t.status, err = n.Status(ctx)
		return true, err
	case decide.BackLive, decide.BackBoot:
		return n.goBack(ctx, t, step)
	case decide.Stay:
		return true, n.stay(ctx, t)
	}
	return true, fmt.Errorf("%s: no act %q", step.Name, step.Act) // TestEveryActIsDone
}

// undoFor undoes the change on trial. Where nobody has just asked the registry, what the node
// runs is older than what it has accepted from then on.
func (n *Node) undoFor(ctx context.Context, t *turn, step decide.Step) (err error) {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	tried := s.Trial.Generation.Generation
	if err := n.undo(ctx, step.Why); err != nil {
		return err
	}
	if t.event == decide.Answer {
		t.before, err = n.running()
		return err
	}
	n.setSync(spec.SyncBehind, fmt.Sprintf("generation %d was undone: %s", tried, step.Why))
	return n.remember()
}

// turnTo goes on with what runs.
func (n *Node) turnTo(t *turn, e decide.Event) (err error) {
	t.event, t.next, t.fault = e, nil, nil
	t.before, err = n.found()
	return err
}

// settle ends what was left unfinished, and may have gone wrong, while nobody looked.
func (n *Node) settle(ctx context.Context) error {
	if n.follower == nil {
		return nil
	}
	return n.cycle(ctx, &turn{event: decide.Begin})
}

// Apply reconciles the node with the overlay it runs. A generation that was
// staged for this boot is promoted: it came up and was applied.
func (n *Node) Apply(ctx context.Context) (*spec.Status, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	if err := n.settle(ctx); err != nil {
		return nil, err
	}
	t := new(turn)
	if err := n.turnTo(t, decide.Look); err != nil {
		return nil, err
	}
	return n.outcome(t, n.cycle(ctx, t))
}

// outcome is what a turn ended in. What failed as a root came up is no error: the node goes
// on, and its status says how.
func (n *Node) outcome(t *turn, err error) (*spec.Status, error) {
	if t.comesUp && t.status != nil && err != nil {
		n.say("%v", err)
		err = nil
	}
	return t.status, err
}

// Sync asks for a newer generation and applies it when the running root can take
// it, all of it or nothing. What needs another root is staged for the next boot.
// A refusal changes nothing: the node goes on as it is. So does a change that
// fails; then there is a status and an error.
func (n *Node) Sync(ctx context.Context) (*spec.Status, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	st, err := n.sync(ctx)
	n.free()               // what waits may be another layer now
	if n.o.By != Service { // who asks by hand leaves a trace, whatever comes of it
		n.record("asked", events.With("sync", n.boot.Sync), events.With("why", n.boot.SyncDetail))
	}
	return st, err
}

func (n *Node) sync(ctx context.Context) (*spec.Status, error) {
	if err := n.settle(ctx); err != nil {
		return nil, err
	}
	t := &turn{event: decide.Answer}
	var err error
	if t.before, err = n.found(); err != nil { // the keys were changed, or the disk was: what the registry has may still be good
		n.say("the running overlay is missing or no longer verifies: %v", err)
	}
	t.next, t.fault = n.follower.Sync(ctx)
	n.boot.Live.Asked = time.Now().Unix()
	metrics.CountFetch(&n.boot.Live.Counts, t.fault, time.Now())
	if t.fault != nil {
		t.next = nil
		if refusal.Of(t.fault) != "" {
			n.note(state.Generation{}, t.fault, spec.Event{Event: spec.EventRefused, Did: "goes on with what it has"})
		}
		n.setSync(track.Describe(t.fault))
	} else {
		if err := errors.Join(n.noteHad(t.next), n.here(ctx, t.before, t.next)); err != nil {
			return nil, err
		}
		n.setSync(n.axis(t.next))
		same := t.before != nil && t.before.Generation.Overlay == t.next.Generation.Overlay
		if same || t.next.Unchanged { // the publisher took back what could not be applied
			n.boot.Live.TakenBack = nil
		}
	}
	if err := n.remember(); err != nil {
		return nil, errors.Join(t.fault, err)
	}
	return n.outcome(t, n.cycle(ctx, t))
}

// prepare does what comes before a run that changes something.
func (n *Node) prepare(ctx context.Context, found *track.Found) error {
	if err := n.takeOver(); err != nil {
		return err
	}
	n.bring(ctx, &found.Overlay)
	return nil
}

// watchOnly looks at a node on which nothing is to be changed now.
func (n *Node) watchOnly(ctx context.Context, found *track.Found, why string) (*spec.Status, error) {
	n.say("nothing is changed now: %s", why)
	result := n.lookAt(ctx, found, func(ctx context.Context) items.Result {
		return items.Look(ctx, n.items(found), n.guard(found))
	})
	if err := n.counted(n.corrections().Save()); err != nil {
		return nil, err
	}
	return n.report(found, result)
}

// enforce makes the node as an overlay says.
func (n *Node) enforce(ctx context.Context, found *track.Found) (*spec.Status, error) {
	guard := n.guard(found)
	keep := func(ctx context.Context) items.Result {
		return items.Keep(ctx, n.items(found), n.journal, guard)
	}
	result := n.lookAt(ctx, found, keep)
	n.noteServices(&found.Overlay)
	n.recordChanges(result, found.Generation.Generation, n.cause(guard != nil))
	remember := func() error { return n.counted(n.corrections().Keep(found.Generation.Overlay)) }
	if guard == nil {
		remember = func() error { return n.counted(n.corrections().Begin(found.Generation.Overlay)) }
	}
	if err := remember(); err != nil {
		return nil, err
	}
	if err := n.retire(ctx, result); err != nil {
		return nil, err
	}
	if err := n.cycle(ctx, &turn{event: decide.Effect, next: found, result: result, applied: true, keeps: true}); err != nil {
		return nil, err
	}
	return n.report(found, result)
}
