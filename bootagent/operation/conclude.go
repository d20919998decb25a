// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// over begins the end of a turn: the act is over.
func (e *Engine) over(o spec.Operation, r *record) error {
	t := r.Turn
	t.Outcome = ""
	if r.State == spec.OperationFailed {
		t.Outcome = r.Detail
	}
	if err := remove(e.notes(o)); err != nil {
		return err
	}
	r.State, r.Phase, r.Unit = spec.OperationRunning, after, ""
	t.Boot = e.Boot
	t.to(judged)
	return e.save(o, *r)
}

// up is how long the kernel runs, in seconds; never 0.
func (e *Engine) up() int64 {
	since := uptime.Now
	if e.Up != nil {
		since = e.Up
	}
	return 1 + int64(since()/time.Second)
}

// notes is the file in which gates note what they saw after an operation.
func (e *Engine) notes(o spec.Operation) string { return filepath.Join(e.dir(o), "gates") }

func remove(name string) error {
	return fault.But(os.Remove(name), fs.ErrNotExist)
}

// judge asks whether the node is well. Without gates nothing says that it is not.
func (e *Engine) judge(ctx context.Context, notes string) (Judgement, string) {
	if e.Gates == nil {
		return Well, ""
	}
	if err := ownfiles.Folder(filepath.Dir(notes)); err != nil {
		return Judging, err.Error()
	}
	how, why := e.Gates.Judge(ctx, notes)
	if how != Judging { // who asks again wants to know how it is then
		if err := remove(notes); err != nil {
			return Judging, err.Error()
		}
	}
	return how, why
}

// Judged returns the names of the notes that gates keep at the moment.
func (e *Engine) Judged() ([]string, error) {
	if e.Gates == nil {
		return nil, nil
	}
	all, err := filepath.Glob(filepath.Join(e.Dir, "*", "gates"))
	if err != nil {
		return nil, err
	}
	boot, err := filepath.Glob(filepath.Join(e.Dir, "gates"))
	return append(all, boot...), err
}

// conclude takes one step of the end of a turn. more is false where it has to wait.
func (e *Engine) conclude(ctx context.Context, m *spec.Maintenance, o spec.Operation, r *record) (more bool, err error) {
	t := r.Turn
	if t == nil { // a record that others wrote
		return true, e.end(o, r, errInterrupted)
	}
	if t.Boot != e.Boot { // its command ended with that boot
		t.Boot, t.Unit = e.Boot, ""
	}
	if t.Step != judged && t.Step != still && e.early(t) {
		return false, nil
	}
	e.wentBack(o, t, r)
	switch t.Step {
	case judged, still:
		switch how, why := e.judge(ctx, e.notes(o)); how {
		case Judging:
			return false, e.hold(o, r, spec.ForGates, why)
		case Unwell:
			return true, e.keep(o, r, "the node is not well after it: "+why)
		}
		if t.Step == still {
			t.to(releasing)
		} else {
			t.to(undoing)
		}
	case undoing:
		d := order(o).Drain
		switch {
		case !t.Drained:
		case d == nil:
			return false, e.hold(o, r, spec.ForTurn, "undo the drain: it is not published any more")
		default:
			over, said, err := e.ask(ctx, o, r, d.Undo)
			if err != nil || !over {
				return false, err
			}
			if said != nil {
				return false, e.hold(o, r, spec.ForTurn, fmt.Sprintf("undo the drain: %v", said))
			}
			t.Drained = false
		}
		if t.Outcome != "" && e.Gates == nil && t.Slot != "" {
			return true, e.keep(o, r, t.Outcome) // nothing says that the next of the group may go the same way
		}
		t.to(soaking)
		t.Up = e.up()
	case soaking:
		up := e.up()
		switch {
		case t.Yields:
		case t.Up == 0 || up < t.Up: // the machine was started over
			t.Up = up
			return false, e.save(o, *r)
		case up-t.Up < order(o).Soak:
			return false, nil
		}
		t.to(still)
		if t.Yields || order(o).Soak == 0 {
			t.to(releasing)
		}
	default:
		if t.Slot != "" {
			if err := e.release(ctx, m, t.Slot); err != nil {
				return false, e.hold(o, r, spec.ForSlot, fmt.Sprintf("give back the slot of %s: %v", t.Slot, err))
			}
			e.Record("gave a slot back", o, t.Slot)
		}
		r.Phase, r.State = "", spec.OperationDone
		switch {
		case t.Yields:
			r.State = t.Was
		case t.Outcome != "":
			r.State, r.Detail = spec.OperationFailed, t.Outcome
		}
		r.Turn = nil
	}
	return true, e.save(o, *r)
}

// keep ends a run that failed and keeps what was taken: its group halts.
func (e *Engine) keep(o spec.Operation, r *record, why string) error {
	e.Record("keeps its turn", o, why)
	r.State, r.Phase, r.Detail = spec.OperationFailed, "", why
	r.Turn.to(judged)
	r.Turn.Over, r.Turn.Tried = true, e.Now().UTC()
	return e.save(o, *r)
}

// yield ends the turn of an operation that is not to start now: its window has closed,
// or its time is over. What is kept after a failure is kept until the node is well.
func (e *Engine) yield(ctx context.Context, m *spec.Maintenance, o spec.Operation, r *record) (more bool, err error) {
	t := r.Turn
	switch {
	case t == nil:
		return false, nil
	case t.Over:
		since := e.Now().Sub(t.Tried)
		if e.Gates == nil || since >= 0 && since < tryAgain {
			return false, nil
		}
		if how, _ := e.judge(ctx, e.notes(o)); how != Well {
			return false, nil
		}
		t.Over, r.Detail = false, t.Outcome
		t.to(undoing)
	default:
		if t.Unit != "" && t.Boot == e.Boot {
			if err := e.Runner.End(t.Unit); err != nil {
				return false, err
			}
		}
		t.Yields, t.Was = true, r.State
		t.to(undoing)
	}
	r.State, r.Phase = spec.OperationRunning, after
	return true, e.save(o, *r)
}

// inherit hands what withdrawn operations have taken to those that are published under
// their names now, and gives back what nobody inherits. What it cannot give back is in
// a status.
func (e *Engine) inherit(ctx context.Context, m *spec.Maintenance) (left []spec.OperationStatus, err error) {
	dirs, err := os.ReadDir(e.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	published := e.known
	var errs []error
	for _, d := range dirs {
		id := digest.FromHex(d.Name())
		if !d.IsDir() || len(d.Name()) != 64 || slices.ContainsFunc(published, func(o spec.Operation) bool { return o.ID == id }) {
			continue
		}
		old := spec.Operation{ID: id}
		r, err := e.read(old)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if r.Turn == nil || r.State == spec.OperationRunning && r.Boot == e.Boot && e.Runner.Running(r.Unit) {
			continue
		}
		if left, err = e.handOver(ctx, m, old, &r, left); err != nil {
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

func (e *Engine) handOver(ctx context.Context, m *spec.Maintenance, old spec.Operation, r *record,
	left []spec.OperationStatus) ([]spec.OperationStatus, error) {
	t := r.Turn
	for _, o := range operations(m) {
		if o.Name != r.Name || !disturbs(o) {
			continue
		}
		heir, err := e.load(o)
		if err != nil || heir.Turn != nil {
			return left, err
		}
		heir.Turn = &turn{Step: judged, Boot: e.Boot, Slot: t.Slot, Drained: t.Drained, Yields: true, Was: heir.State}
		heir.State, heir.Phase = spec.OperationRunning, after
		if err := e.save(o, heir); err != nil {
			return left, err
		}
		t.Slot, t.Drained = "", false
	}
	var trouble []string
	if t.Slot != "" {
		m = cmp.Or(m, &spec.Maintenance{})
		if err := e.release(ctx, m, t.Slot); err != nil {
			trouble = append(trouble, err.Error())
		} else {
			t.Slot = ""
		}
	}
	if t.Drained {
		trouble = append(trouble, "the node is drained for it: publish it again, or undo that by hand and remove "+e.dir(old))
	}
	if len(trouble) > 0 {
		return append(left, spec.OperationStatus{Name: r.Name, State: spec.OperationCannot, Since: r.Began,
			Detail: "it was withdrawn in its turn: " + strings.Join(trouble, "; ")}), nil
	}
	if err := remove(e.notes(old)); err != nil {
		return left, err
	}
	r.Turn = nil
	if r.State == spec.OperationRunning {
		r.State, r.Detail = spec.OperationFailed, "it was withdrawn"
	}
	return left, e.save(old, *r)
}

// steadied reports whether the slots of the boot before were given back. A ledger in memory
// ends with its boot, and a soft-reboot is not a boot.
func (e *Engine) steadied() bool {
	_, err := ownfiles.ReadFile(filepath.Join(e.Dir, "steady"), maxRecord)
	return err == nil
}

func (e *Engine) noteSteady() error {
	if err := ownfiles.Folder(e.Dir); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return durable.WriteFile(filepath.Join(e.Dir, "steady"), []byte(e.Boot), 0o600)
}
