// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/sense/uptime"
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
