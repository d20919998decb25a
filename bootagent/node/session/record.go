// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/metrics"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

// log is where records of this node go.
func (n *Session) log() events.Log {
	return events.Log{Root: n.Options.Root, By: n.Options.By, Say: n.Say}
}

// Box is the node's black box.
func (n *Session) Box() events.Box { return events.BoxAt(n.Folder.Path(events.BoxName)) }

// Record writes down what was done to this node, under the generation in effect where
// the fields name none.
func (n *Session) Record(event string, fields ...events.Field) {
	if g := n.inEffect(); g > 0 && !slices.ContainsFunc(fields, func(f events.Field) bool { return f.Name == "generation" }) {
		fields = append(fields, events.With("generation", g))
	}
	n.log().Record(event, fields...)
}

// inEffect is the generation that this node has accepted and runs, 0 where that is not
// known.
func (n *Session) inEffect() uint64 {
	if n.Owner == nil {
		return 0
	}
	if s, err := n.Owner.State(); err == nil && s.Best() != nil { // a record is made without it, too
		return s.Best().Generation
	}
	return n.Boot.Generation.Generation
}

// RecordChanges writes a record of each change that a run made.
func (n *Session) RecordChanges(result items.Result, generation uint64, why string) {
	changes := result.Changes
	if why == events.WhyDrift {
		last := n.Last().Drift
		var waited, drifted []spec.Drift
		for _, d := range changes {
			if items.Deferred(last, d.Item, d.Key) {
				waited = append(waited, d)
			} else {
				drifted = append(drifted, d)
			}
		}
		n.log().Changes(waited, generation, events.WhyWaited)
		n.Owner.Remember(func(l *record.Live) { metrics.CountCorrections(&l.Counts, drifted, last) })
		changes = drifted
	}
	n.log().Changes(changes, generation, why)
}

// Note puts an event into the black box, once a boot. That it could not be noted is said,
// and changes nothing else.
func (n *Session) Note(g state.Generation, err error, e spec.Event) {
	if n.Lock == nil {
		return // only looking
	}
	if err != nil {
		e = events.Blame(e, err)
		if item, key := items.Culprit(err); item != "" {
			e.Item, e.Key = item, key
		}
	}
	fault.Say(n.Say, events.Note(n.Box(), n.Scopes.Kernel, g, e))
}

// Last is the status after the last run, the zero one when there was none.
func (n *Session) Last() spec.Status {
	var last spec.Status
	data, err := os.ReadFile(n.Path(paths.RunStatus))
	if err != nil || json.Unmarshal(data, &last) != nil {
		return spec.Status{}
	}
	return last
}

// Damage returns the error that says what the journal has lost.
func (n *Session) Damage() error {
	if n.Lost != nil {
		return n.Lost
	}
	lines := n.Journal.DamagedLines()
	if lines == 0 {
		return nil
	}
	return fmt.Errorf("%d lines of the journal are damaged: the originals in them are not known; look at %s, then remove it",
		lines, n.Folder.Path("journal", journal.Damaged))
}

// After a change that may have cut the node off the registry is asked whether it is still reached, for as long
// as such a change has to show that.
//
// Time is the kernel's uptime: the change itself may set the clock. What follows from
// the answer is decided in package decide.

// TrialTime is how long a change has to prove that the node can still be reached.
const TrialTime = time.Minute

// TrialClock is the time that a test takes.
type TrialClock interface {
	Up() time.Duration
	Sleep(ctx context.Context, d time.Duration)
}

// How often is asked, and how long one question may take.
const (
	pause   = time.Second
	answers = 10 * time.Second
)

// ReachWithin asks until there is an answer, for as long as within, and returns the error of
// the last question when there is none.
func ReachWithin(ctx context.Context, c TrialClock, within time.Duration, ask func(context.Context) error) error {
	end := c.Up() + within
	for {
		left := end - c.Up()
		one, cancel := context.WithTimeout(ctx, min(answers, max(left, time.Millisecond)))
		err := ask(one)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case c.Up()+pause >= end:
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("no answer")
			}
			return err
		}
		c.Sleep(ctx, pause)
	}
}

// KernelClock is the clock of this machine.
type KernelClock struct{ Uptime func() time.Duration }

// Up implements Clock.
func (k KernelClock) Up() time.Duration { return k.Uptime() }

// Sleep implements Clock.
func (k KernelClock) Sleep(ctx context.Context, d time.Duration) {
	_ = stall.Rest(ctx, d) // who sleeps asks the context
}
