// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// act names the next step of an operation.
type act int

const (
	rest     act = iota
	begin        // start a phase
	settle       // a phase has ended
	stop         // a phase has to end
	giveBack     // the turn has to end
)

// verdict holds the result of decide.
type verdict struct {
	act     act
	phase   string  // of begin
	fresh   bool    // of begin: it is not a retry
	settled *record // what is to be noted first
	run     *record // of begin: what is to be noted with it
	status  spec.OperationStatus
}

// late is how long after its time a run still counts as on time.
const late = 10 * time.Minute

// astray is how far ahead of the clock a ledger's time no longer counts.
const astray = 24 * time.Hour

// rebootTime is how long a machine may take until it goes down.
const rebootTime = 15 * time.Minute

// decide says what is to be done of an operation, and where it stands. It changes
// nothing.
func (e *Engine) decide(m *spec.Maintenance, o spec.Operation, r record) (v verdict) {
	v = verdict{status: spec.OperationStatus{Name: o.Name, Type: o.Type, State: r.State, Detail: r.Detail,
		Attempts: r.Attempts, Missed: r.Missed, Since: r.Ended}}
	if !r.Began.IsZero() && !isSwap(o) {
		v.status.Log = e.log(o)
	}
	defer v.turn(o, r)
	switch {
	case isSwap(o) && e.Swap.Unknown != nil:
		v.status.State, v.status.Detail = spec.OperationCannot, e.Swap.Unknown.Error()
		return v
	case r.State == spec.OperationRunning:
		v.running(e, m, o, r)
		return v
	case o.Disruptive && !e.Remembers && o.Check == nil && !isSwap(o):
		v.status.State, v.status.Detail = spec.OperationCannot, "no ledger: without a state disk what disturbs needs a check"
		return v
	case order(o).Drain != nil && !e.Remembers:
		v.status.State, v.status.Detail = spec.OperationCannot, "no ledger: without a state disk no record would show whose drain is to be undone"
		return v
	case isSwap(o):
		v.swap(e, o, r)
		return v
	case r.Asked == now:
		v.start(o, true)
		return v
	case o.Type == spec.Cron:
		v.cron(e, m, o, r)
	default:
		v.once(e, m, o, r)
	}
	return v
}

// running decides about what runs, or ran when the node was last seen.
func (v *verdict) running(e *Engine, m *spec.Maintenance, o spec.Operation, r record) {
	v.status.Since = r.Began
	switch {
	case r.Phase == after:
		v.act = giveBack
	case r.Phase == checked:
		v.act, v.phase = begin, acting
	case e.moved(o, r):
		v.act = settle
	case r.Phase == leaving && r.Boot == e.Boot && e.up()-r.EndedUp < int64(rebootTime/time.Second):
		v.status.Detail = "the machine reboots"
	case r.Boot != e.Boot && o.Check != nil && r.Phase != judging:
		v.act, v.phase = begin, judging // it may have been what rebooted
	case r.Boot == e.Boot && e.Runner.Running(r.Unit):
		if uptime.Stop(m, o.Windows, e.Now()) {
			v.act = stop
		}
	default:
		v.act = settle
	}
}

// start begins an operation: with its check, if it has one.
func (v *verdict) start(o spec.Operation, fresh bool) {
	v.wait("", "it is due")
	v.act, v.phase, v.fresh = begin, acting, fresh
	if o.Check != nil && !disturbs(o) { // else its turn asks that
		v.phase = checking
	}
}

// wait leaves an operation to a later look.
func (v *verdict) wait(what, why string) {
	v.status.State, v.status.For, v.status.Detail = spec.OperationWaiting, what, why
}

// once decides about an operation of type oneShot that does not run.
func (v *verdict) once(e *Engine, m *spec.Maintenance, o spec.Operation, r record) {
	fresh := r.State == "" || r.Asked == again
	switch {
	case !fresh && r.State == spec.OperationDone:
		return
	case !fresh && !v.retry(e, o, r):
		return
	}
	if ok, what, why := e.mayStart(m, o); !ok {
		v.wait(what, why)
		return
	}
	v.start(o, fresh)
}

// retry says whether a failed operation is tried again now; if later, it waits.
func (v *verdict) retry(e *Engine, o spec.Operation, r record) bool {
	if r.State != spec.OperationFailed || max(r.Attempts, 1) > o.Retries { // what failed was tried
		return false
	}
	backoff := time.Duration(o.Backoff) * time.Second << min(max(r.Attempts-1, 0), 10)
	if at := r.Ended.Add(backoff); e.Now().Before(at) && !e.Now().Before(r.Ended) {
		v.wait(spec.ForRetry, fmt.Sprintf("it failed: %s; the next attempt is at %s", r.Detail, at.Format("2006-01-02 15:04 UTC")))
		v.status.Next = at
		return false
	}
	return true
}

// cron decides about an operation of type cron that does not run.
func (v *verdict) cron(e *Engine, m *spec.Maintenance, o spec.Operation, r record) {
	if !e.Synchronised() { // what its clock says must not end up in the ledger
		v.wait(spec.ForClock, e.unsynchronised())
		return
	}
	// Seen for the first time, what was before is not this node's. A clock that is put
	// back a little must not repeat a run; one that was far off must not end them.
	if r.Handled.IsZero() || r.Handled.After(e.Now().Add(astray)) {
		r.Handled = e.Now().UTC()
		v.settled = &r
	}
	shift := e.part(o.ID, o.Jitter)
	var last, next time.Time
	passed := int64(0)
	for _, at := range o.Runs {
		switch at = at.Add(shift); {
		case at.After(e.Now()):
			if next.IsZero() {
				next = at
			}
		case at.After(r.Handled):
			last, passed = at, passed+1
		}
	}
	v.status.Next = next
	ok, what, why := e.mayStart(m, o)
	onTime := passed > 0 && (e.Now().Sub(last) <= late || r.Turn.of(last))
	switch {
	case passed > 0 && (onTime || o.CatchUp) && ok:
		r.Handled, r.Missed = last, r.Missed+passed-1
		v.run = &r
		v.start(o, true)
	case passed > 0 && (onTime || o.CatchUp):
		v.wait(what, why)
	case passed > 0:
		r.Handled, r.Missed = last, r.Missed+passed
		v.settled = &r
		v.status.Missed = r.Missed
		v.schedule(e, m, next)
	case r.Asked == again && ok:
		v.start(o, true)
	case r.Asked == again:
		v.wait(what, why)
	case v.retry(e, o, r) && ok:
		v.start(o, false)
	case v.status.State != spec.OperationWaiting:
		v.schedule(e, m, next)
	}
}

// schedule says when an operation runs next, and keeps that the last run failed.
func (v *verdict) schedule(e *Engine, m *spec.Maintenance, next time.Time) {
	if v.status.State == spec.OperationFailed {
		return
	}
	v.status.State = spec.OperationScheduled
	switch {
	case !next.IsZero():
	case !e.Now().Before(m.Horizon):
		v.wait(spec.ForSchedule, "the published calendar has ended: the site has to be published again")
	default:
		v.status.Detail = "no time is left before the published calendar ends"
	}
}

// part is a node's own part of some seconds: always the same.
func (e *Engine) part(id string, seconds int64) time.Duration {
	if seconds <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(e.Node + "\n" + id))
	return time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(seconds)) * time.Second
}

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
	return fault.In(os.RemoveAll(e.dir(o)), "ledger")
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
