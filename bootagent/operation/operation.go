// SPDX-License-Identifier: Apache-2.0

// Package operation runs what a node does once or by a clock.
//
// A ledger holds one record an operation, by its id: what is done is not done again,
// also not under a new calendar. A record says "running" before anything starts; one
// of an earlier boot was interrupted, which is a failure unless the operation's check
// says that it is done. Nothing waits here: [Engine.Look] notes what has ended, starts
// what is due, and returns; it is called again and again. Of one operation there are
// never two runs at once.
//
// What disturbs takes its turn first: preconditions, its own check, a slot, the
// preconditions again, the drain; its window is asked about before each step. After
// the act come the gates, the end of the drain, a while, and the end of the slot. What
// was taken is on disk before it is asked for, so that it is given back after a crash
// and after a reboot, and nothing is given back that another holds. Package operate
// gives it its clocks, its runner and its turns.
package operation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/spec"
)

// Engine holds what operations need of a node.
type Engine struct {
	Dir       string // the ledger
	Node      string
	Boot      string // identity of this boot
	Remembers bool   // the ledger outlives a reboot
	Clock
	Runner process.Runner
	Record func(what string, o spec.Operation, detail string) // of what was started and how it ended

	Slots Slots  // nil where there are none
	Gates Gates  // nil where nothing is looked at after an act
	Units Units  // nil where systemd does not run
	Root  string // prefix of the files of preconditions, for tests
	Swap  *Swap  // nil where caisson does not boot this node

	known    []spec.Operation // of this look
	fileTime time.Duration    // how long a file's server may take for an answer; 0: 10 s
}

// Clock is the time by which operations are due and wait.
type Clock struct {
	Now func() time.Time
	// since the kernel started: a clock that is set must neither end a wait nor draw it out; nil is
	// [uptime.Now]
	Up           func() time.Duration
	Synchronised func() bool // the clock is right
	Servers      []string    // of the site, which the time service asks
}

// Slots are the turns that the nodes of a group take, as package post has them.
type Slots interface {
	Take(ctx context.Context, group string, s spec.Slot) error    // also what is held already
	Release(ctx context.Context, group string, s spec.Slot) error // also what is not held
}

// Gates say whether the node is well after something that disturbed it. Their notes of
// one run are in a file; without it they begin again.
type Gates interface {
	Judge(ctx context.Context, notes string) (Judgement, string)
}

// Judgement is a verdict of gates.
type Judgement int

// Judgements.
const (
	Judging Judgement = iota // not known yet; the text says what is waited for
	Well
	Unwell // the text says why
)

// Units says what a unit of systemd does: active, inactive or once.
type Units interface {
	State(ctx context.Context, unit string) (state string, since time.Time, err error)
}

// Look notes what has ended and starts what is due. An operation that fails is in its
// status; an error is of the ledger.
func (e *Engine) Look(ctx context.Context, m *spec.Maintenance) ([]spec.OperationStatus, error) {
	var out []spec.OperationStatus
	errs := []error{e.steady(ctx, m)}
	e.known = e.all(m)
	left, err := e.inherit(ctx, m)
	errs = append(errs, err)
	for _, o := range e.known {
		calendar := e.calendar(m, o)
		r, err := e.load(o)
		if err == nil {
			err = e.advance(ctx, calendar, o, &r)
		}
		if err == nil && e.idle(o, r) {
			if err = e.forget(o, r); err == nil {
				continue
			}
		}
		if err != nil {
			errs = append(errs, err)
			out = append(out, spec.OperationStatus{Name: o.Name, Type: o.Type, State: spec.OperationCannot, Detail: err.Error()})
			continue
		}
		out = append(out, e.decide(calendar, o, r).status)
	}
	return append(out, left...), errors.Join(errs...)
}

// View says where the operations stand, and changes nothing.
func (e *Engine) View(m *spec.Maintenance) []spec.OperationStatus {
	var out []spec.OperationStatus
	for _, o := range e.all(m) {
		r, err := e.load(o)
		if err == nil && e.idle(o, r) {
			continue
		}
		s := e.decide(e.calendar(m, o), o, r).status
		if err != nil {
			s.State, s.Detail = spec.OperationCannot, err.Error()
		}
		out = append(out, s)
	}
	return out
}

// Ask notes that an operator wants an operation to run: now, or else again, in its
// windows. The next Look starts it. One that runs is not asked for: it would run a second
// time behind that.
func (e *Engine) Ask(m *spec.Maintenance, name string, atOnce bool) (runs bool, err error) {
	for _, o := range e.all(m) {
		if o.Name != name {
			continue
		}
		r, err := e.load(o)
		if err != nil {
			return false, err
		}
		if e.idle(o, r) {
			return false, errors.New("nothing waits for a reboot")
		}
		if r.State == spec.OperationRunning && r.Boot == e.Boot && r.Phase != after {
			return true, nil
		}
		r.Asked = again
		if atOnce {
			r.Asked = now
		}
		return false, e.save(o, r)
	}
	return false, fmt.Errorf("this node has no operation %q", name)
}

func operations(m *spec.Maintenance) []spec.Operation {
	if m == nil {
		return nil
	}
	return m.Operations
}

// advance does what is to be done of one operation until it rests.
func (e *Engine) advance(ctx context.Context, m *spec.Maintenance, o spec.Operation, r *record) error {
	if isSwap(o) && e.Swap.Unknown != nil {
		return nil
	}
	for range 32 + 2*len(order(o).When) {
		v := e.decide(m, o, *r)
		if v.settled != nil {
			*r = *v.settled
			if err := e.save(o, *r); err != nil {
				return err
			}
		}
		var err error
		switch v.act {
		case rest:
			if r.State == spec.OperationRunning { // begun before this process was
				return process.CapLog(e.log(o))
			}
			if more, err := e.yield(ctx, m, o, r); err != nil || !more {
				return err
			}
		case begin:
			more := true
			if disturbs(o) && v.phase == acting {
				more, err = e.approach(ctx, m, o, r, v)
			} else {
				err = e.begin(ctx, o, r, v)
			}
			if !more && err == nil {
				return nil
			}
		case giveBack:
			more := false
			if more, err = e.conclude(ctx, m, o, r); !more && err == nil {
				return nil
			}
		case stop:
			err = e.end(o, r, errors.Join(errStopped, e.Runner.End(r.Unit)))
		case settle:
			err = e.settle(ctx, o, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	errStopped     = errors.New("it was stopped: its window closed")
	errInterrupted = errors.New("it was interrupted")
)

// begin starts a phase. That it runs is on disk before it does.
func (e *Engine) begin(ctx context.Context, o spec.Operation, r *record, v verdict) error {
	if isSwap(o) {
		return e.startOver(ctx, o, r)
	}
	if v.run != nil {
		r.Handled, r.Missed = v.run.Handled, v.run.Missed
	}
	if v.fresh {
		r.Attempts = 0
	}
	if v.phase != judging && r.Phase != checked { // an attempt begins with its check
		r.Attempts++
	}
	r.State, r.Phase, r.Boot, r.Unit, r.Detail, r.Asked = spec.OperationRunning, v.phase, e.Boot, "", "", ""
	r.Began, r.Ended = e.Now().UTC(), time.Time{}
	if err := e.save(o, *r); err != nil {
		return err
	}
	c := o.Exec
	if v.phase != acting {
		c = *o.Check
	}
	if err := os.Remove(e.log(o)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("log of %s: %w", o.Name, err)
	}
	id, err := e.Runner.Start(ctx, command("caisson-operation-", o, c, e.log(o)))
	if err != nil {
		return e.end(o, r, err)
	}
	if v.phase == acting {
		e.Record("started", o, "")
	}
	r.Unit = id
	go process.KeepSmall(e.Runner, id, e.log(o)) // Look does it when this process is gone
	return e.save(o, *r)
}

// settle notes how a phase ended.
func (e *Engine) settle(ctx context.Context, o spec.Operation, r *record) error {
	switch {
	case isSwap(o):
		return e.arrived(o, r)
	case r.Boot != e.Boot && o.Reboots && r.Phase != judging: // and nothing else says whether it was done
		return e.end(o, r, nil)
	case r.Phase == leaving:
		return e.end(o, r, fmt.Errorf("the machine did not reboot within %v", rebootTime))
	}
	if r.Boot != e.Boot || r.Unit == "" {
		return e.end(o, r, errInterrupted)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	id := r.Unit
	err := e.Runner.Wait(ctx, id)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, process.ErrNoAnswer):
		return err
	case errors.Is(err, process.ErrUnknown):
		err = errInterrupted
	}
	if err := e.end(o, r, errors.Join(err, process.CapLog(e.log(o)))); err != nil {
		return err // how it ended is asked again
	}
	return e.Runner.End(id)
}

// end notes the end of a phase. A check that says no is not a failure: what it was
// asked before comes next. One that could not be asked is.
func (e *Engine) end(o spec.Operation, r *record, err error) error {
	r.Ended, r.Unit, r.Detail = e.Now().UTC(), "", ""
	switch {
	case err == nil && r.Phase == checking:
		r.State, r.Detail = spec.OperationDone, "its check says that it is done"
	case err == nil && o.Reboots && r.Phase == acting && r.Boot == e.Boot:
		r.Phase, r.EndedUp = leaving, e.up()
	case err == nil:
		r.State = spec.OperationDone
	case r.Phase == checking && saysNo(err):
		r.State, r.Phase = spec.OperationRunning, checked
	default:
		r.State, r.Detail = spec.OperationFailed, err.Error()
	}
	if r.State == spec.OperationDone || r.State == spec.OperationFailed {
		e.Record(string(r.State), o, r.Detail)
		if r.Turn != nil {
			return e.over(o, r)
		}
	}
	return e.save(o, *r)
}

// saysNo reports whether a check ran and found that there is something to do. From 126
// on exit codes are of programs that could not be run, or were ended.
func saysNo(err error) bool {
	var exit *process.Exit
	return errors.As(err, &exit) && exit.Status() < 126
}

// mayStart says whether an operation may start now, and if not, for what it waits and
// why.
func (e *Engine) mayStart(m *spec.Maintenance, o spec.Operation) (ok bool, what, why string) {
	if (len(o.Windows) > 0 || o.Type == spec.Cron) && !e.Synchronised() {
		return false, spec.ForClock, e.unsynchronised()
	}
	if ok, why = uptime.May(m, o.Windows, e.Now()); !ok {
		return false, spec.ForWindow, why
	}
	if at := uptime.Opened(m, o.Windows, e.Now()).Add(e.part(o.ID, order(o).Spread)); e.Now().Before(at) {
		return false, spec.ForTurn, "this node's part of the window begins at " + uptime.Moment(at)
	}
	return true, "", ""
}
