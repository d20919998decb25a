// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/spec"
)

// Swap is the one operation that no overlay lists: starting the machine over into what
// waits for that. It has one record, whatever waits.
type Swap struct {
	Policy      spec.LayerSwap
	Maintenance *spec.Maintenance // its windows and slots
	Waits       string            // identity of the root that waits, "" where none does
	Runs        string            // identity of this root
	Busy        string            // one of the For constants: what it waits for before it asks for anything, "" for nothing
	Why         string            // of Busy
	Cannot      string            // why it never starts over by itself, "" where it may
	Newest      bool              // the registry has what runs, as far as it was asked: where nothing waits, nothing will
	Unknown     error             // what waits is not known: nothing is done, and what is taken is kept
	Reboot      func(ctx context.Context) error
}

// swapID is the id of its record.
var swapID = digest.FromHex(strings.Repeat("0", 64))

// retrySwap is how long after a failure that left the machine up it is tried again.
const retrySwap = time.Hour

func isSwap(o spec.Operation) bool { return o.ID == swapID }

// all returns the operations of a node, its swap last: others go before a reboot.
func (e *Engine) all(m *spec.Maintenance) []spec.Operation {
	list := slices.Clone(operations(m))
	if e.Swap != nil {
		order := e.Swap.Policy.Order
		list = append(list, spec.Operation{ID: swapID, Name: spec.LayerSwapName, Type: spec.LayerSwapName, Windows: e.Swap.Policy.Windows,
			Disruptive: true, Order: &order, Action: spec.Action{Reboots: true}})
	}
	return list
}

// calendar returns the calendar that an operation is judged by.
func (e *Engine) calendar(m *spec.Maintenance, o spec.Operation) *spec.Maintenance {
	switch {
	case !isSwap(o):
		return m
	case e.Swap.Maintenance == nil:
		return &spec.Maintenance{}
	}
	return e.Swap.Maintenance
}

// idle reports whether there is nothing to say of the swap: nothing waits, and nothing
// is taken for it.
func (e *Engine) idle(o spec.Operation, r record) bool {
	return isSwap(o) && e.Swap.Unknown == nil && e.Swap.Waits == "" && r.Turn == nil && r.State != spec.OperationRunning
}

// forget removes the record of a swap that there is no more: what waits later is not it. One
// that only does not wait now, as while an operator holds the node, is the same later.
func (e *Engine) forget(o spec.Operation, r record) error {
	if !e.Swap.Newest || r.State == "" && r.Asked == "" {
		return nil
	}
	if err := os.RemoveAll(e.dir(o)); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// swap decides about a swap that does not run.
func (v *verdict) swap(e *Engine, o spec.Operation, r record) {
	s := e.Swap
	tried := r.State == spec.OperationFailed && r.Asked == ""
	switch {
	case s.Waits == "": // what is taken is given back
		return
	case s.Cannot != "":
		v.status.State, v.status.Detail = spec.OperationCannot, s.Cannot
		return
	case tried && r.Target == s.Waits: // until something else waits
		return
	case tried && !e.Now().Before(r.Ended) && e.Now().Before(r.Ended.Add(retrySwap)):
		v.status.Next = r.Ended.Add(retrySwap)
		v.wait(spec.ForRetry, fmt.Sprintf("it failed: %s; the next attempt is at %s", r.Detail, uptime.Moment(v.status.Next)))
		return
	case s.Busy != "":
		v.wait(s.Busy, s.Why)
		return
	}
	m := e.calendar(nil, o)
	if ok, what, why := e.mayStart(m, o); !ok && r.Asked != now {
		v.wait(what, why)
		if next, known := uptime.Soonest(m, o.Windows, e.Now()); known && what == spec.ForWindow {
			v.status.Next = next
		}
		return
	}
	v.start(o, true)
}

// RetrySwap has a swap that failed be tried again in its windows, and returns why it
// failed, "" where none did.
func (e *Engine) RetrySwap() (why string, err error) {
	for _, o := range e.all(nil) {
		if !isSwap(o) {
			continue
		}
		r, err := e.load(o)
		if err != nil || r.State != spec.OperationFailed || r.Asked != "" {
			return "", err
		}
		r.Asked = again
		return r.Detail, e.save(o, r)
	}
	return "", nil
}

// startOver reboots the machine. That it will, and into what, is on disk before.
func (e *Engine) startOver(ctx context.Context, o spec.Operation, r *record) error {
	r.begun(e, verdict{})
	r.State, r.Unit, r.Detail, r.Ended, r.Target, r.From = spec.OperationRunning, "", "", time.Time{}, e.Swap.Waits, e.Swap.Runs
	if err := e.save(o, *r); err != nil {
		return err
	}
	e.Record("started", o, "")
	if err := e.Swap.Reboot(ctx); err != nil {
		r.Target = ""
		return e.end(o, r, fmt.Errorf("reboot: %w", err))
	}
	return e.end(o, r, nil)
}

var errSameRoot = errors.New("the machine came up with what it ran before")

// moved reports whether another root runs than the one that was left: what waited, or
// something newer. Not every way to another root is a boot of the machine.
func (e *Engine) moved(o spec.Operation, r record) bool { return isSwap(o) && e.Swap.Runs != r.From }

// arrived notes what has become of a reboot.
func (e *Engine) arrived(o spec.Operation, r *record) error {
	switch {
	case e.moved(o, *r):
		r.Phase, r.Boot = leaving, e.Boot
		return e.end(o, r, nil)
	case r.Boot != e.Boot:
		return e.end(o, r, errSameRoot)
	case r.Phase == leaving:
		r.Target = ""
		return e.end(o, r, fmt.Errorf("the machine did not reboot within %v", rebootTime))
	}
	// This agent was ended before it had asked for the reboot, or just after: whether
	// that may be is decided again.
	r.State, r.Phase, r.Target = "", "", ""
	return e.save(o, *r)
}

// wentBack notes in the end of a turn that the root which it was for does not run.
func (e *Engine) wentBack(o spec.Operation, t *turn, r *record) {
	if isSwap(o) && !t.Yields && t.Outcome == "" && !e.moved(o, *r) {
		t.Outcome = "the node went back to what it ran before"
	}
}
