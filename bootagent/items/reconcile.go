// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/trace"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Result is what a run did and what is true after it.
type Result struct {
	Items  []spec.ItemStatus
	Drift  []spec.Drift // of the last check; when all is well only what is deferred, and scripts that are due again
	Health spec.Health

	// Changes are what the run did and the last check did not find again.
	Changes []spec.Drift

	// RolledBack says that a transaction failed and that the previous items were
	// put in place again; Err says why.
	RolledBack bool
	Steps      []spec.Step // how long each kind took
	Err        error
}

// Reconcile makes the system as the items want it: check all, restore what left
// the config (last kind first), apply in order, check again. What that second
// check finds is the truth. An item's failure does not stop the others.
//
// The journal is the one that the items were made with.
func Reconcile(ctx context.Context, items []item.Item, j item.Journal) Result {
	return newRun(items, j).reconcile(ctx)
}

// Guard says what is done about drift: about what was set, and is not so any more.
type Guard interface {
	// Judge returns a drift as it is to be treated: as it is to correct it, else with
	// ActionReport, ActionDefer or ActionQuarantine. What a change asks for and was not
	// asked for before is fresh.
	Judge(d spec.Drift, fresh bool) spec.Drift
	// Held lists what of a kind is not in its drift and would not be corrected.
	Held(item string, drift []spec.Drift) []spec.Drift
	// Correct takes note of corrections before they are made.
	Correct(due []spec.Drift) error
	// Undone takes back that one was made; it failed.
	Undone(d spec.Drift)
}

// Keep is Reconcile for a system that was made as the items want it before: what is
// different now is drift, and the guard decides about it.
func Keep(ctx context.Context, items []item.Item, j item.Journal, g Guard) Result {
	r := newRun(items, j)
	r.guard = g
	return r.reconcile(ctx)
}

// Transact is Reconcile for a change on a live node: all of it, or none. The
// change is what next asks for and previous does not. What the node lacked before,
// such as what a run that was cut had not done yet, is tried when the change
// stands, and not held against it.
//
// When the preflight refuses a part of the change, nothing is touched; when
// something fails later, the previous items are put in place again. The guard decides
// about what was drift before; nil is one that lets everything be corrected.
func Transact(ctx context.Context, next, previous []item.Item, j item.Journal, g Guard) Result {
	before := newRun(previous, j)
	before.preflight(ctx)
	r := newRun(next, j)
	r.before, r.known, r.fresh = before, before.all(), g
	r.preflight(ctx)
	if err := r.refusal(); err != nil {
		result := r.result(ctx)
		result.Err = fmt.Errorf("nothing was changed: %w", err)
		return result
	}
	r.restore(ctx)
	if r.failure() == nil {
		r.apply(ctx)
	}
	result := r.result(ctx)
	if result.Err == nil {
		if len(r.known) == 0 {
			return result
		}
		rest := Keep(ctx, next, j, g)
		rest.Changes = append(result.Changes, rest.Changes...)
		rest.Steps = append(result.Steps, rest.Steps...)
		rest.Err = nil // the change stands; what is missing still degrades the node
		return rest
	}
	// A cancelled change is taken back all the same.
	ctx = context.WithoutCancel(ctx)
	undo := newRun(previous, j)
	undo.guard, undo.drifted = g, before.keys()
	r.giveBack(ctx, undo.drifted)
	back := undo.reconcile(ctx)
	back.RolledBack = true
	back.Steps = append(result.Steps, back.Steps...)
	back.Err = fmt.Errorf("the change was taken back: %w", errors.Join(result.Err, back.Err))
	return back
}

// Undo takes back a change that was made, or begun: where the system is as tried wants it
// and not as back does, it is made as back does. What neither finds is drift, and left
// to the next look.
func Undo(ctx context.Context, back, tried []item.Item, j item.Journal, g Guard) Result {
	made := newRun(tried, j)
	made.preflight(ctx)
	r := newRun(back, j)
	r.known, r.guard = made.all(), g
	return r.reconcile(ctx)
}

// Beside puts a result of some kinds beside what the status before says of the others.
func (r *Result) Beside(last spec.Status) {
	looked := func(kind string) bool {
		return slices.ContainsFunc(r.Items, func(i spec.ItemStatus) bool { return i.Name == kind })
	}
	all := slices.Clone(last.Items)
	for i, s := range all {
		if n := slices.IndexFunc(r.Items, func(i spec.ItemStatus) bool { return i.Name == s.Name }); n >= 0 {
			all[i] = r.Items[n]
		}
		for _, d := range last.Drift {
			if d.Item == s.Name && !looked(s.Name) {
				r.Drift = append(r.Drift, d)
			}
		}
		r.Health = r.Health.And(all[i].State.Health())
	}
	r.Items = all
}

// Same reports whether a look at some kinds has found the drift that the status before says
// of them.
func (r *Result) Same(last spec.Status) bool {
	left := 0
	for _, d := range last.Drift {
		if slices.ContainsFunc(r.Items, func(i spec.ItemStatus) bool { return i.Name == d.Item }) {
			left++
		}
	}
	return left == len(r.Drift) && !slices.ContainsFunc(r.Drift, func(d spec.Drift) bool {
		return !slices.ContainsFunc(last.Drift, func(l spec.Drift) bool {
			return l.Item == d.Item && l.Key == d.Key && l.From == d.From && l.To == d.To && l.Action == d.Action
		})
	})
}

// Look checks and writes nothing: the result is that of a run that did nothing.
func Look(ctx context.Context, items []item.Item, g Guard) Result {
	r := newRun(items, nil)
	r.guard = g
	r.preflight(ctx)
	return r.result(ctx)
}

// Preview is what Transact would do, or Reconcile where there is nothing previous. It
// writes nothing.
func Preview(ctx context.Context, next, previous []item.Item, g Guard) ([]spec.Drift, error) {
	before := newRun(previous, nil)
	before.preflight(ctx)
	r := newRun(next, nil)
	r.guard, r.known, r.fresh = g, before.all(), g
	r.preflight(ctx)
	return slices.Concat(r.drift...), r.failure()
}

// Wait ends when nothing that the items started runs in the background any more.
// An agent that applies once and ends calls it before it does.
func Wait(items []item.Item) error {
	var errs []error
	for _, it := range items {
		if w, ok := it.(interface{ Wait() error }); ok {
			errs = append(errs, w.Wait())
		}
	}
	return errors.Join(errs...)
}

// run is one pass over the table; the slices are parallel to items.
type run struct {
	items   []item.Item
	journal item.Journal
	drift   [][]spec.Drift // of the last check
	unseen  []error        // why that check could not be made
	errs    []error        // of restore and apply
	did     []spec.Drift   // what was acted on
	before  *run           // what the change begins with; nil where there is none
	known   map[wish]bool  // drift of it, which does not belong to the change
	guard   Guard          // of drift; nil: all of it is corrected
	fresh   Guard          // of what a change asks for; nil: all of it is done
	drifted map[wish]bool  // with To left empty: all that is drift, nil for everything; the rest is a change taken back
	failed  [][]spec.Drift // corrections that the guard took note of, of an Apply that complained
	changed bool           // so what a later item saw in the preflight may be stale
	trace   trace.Recorder
}

func newRun(items []item.Item, j item.Journal) *run {
	n := len(items)
	return &run{items: items, journal: j, drift: make([][]spec.Drift, n), unseen: make([]error, n), errs: make([]error, n),
		failed: make([][]spec.Drift, n)}
}

func (r *run) reconcile(ctx context.Context) Result {
	r.preflight(ctx)
	r.restore(ctx)
	r.apply(ctx)
	return r.result(ctx)
}

// wish is what a drift is about, whatever was found there.
type wish struct{ item, key, to string }

func wishOf(d spec.Drift) wish { return wish{d.Item, d.Key, d.To} }

// all is what the last check found.
func (r *run) all() map[wish]bool {
	found := map[wish]bool{}
	for _, drift := range r.drift {
		for _, d := range drift {
			found[wishOf(d)] = true
		}
	}
	return found
}

// keys is [run.all] by key alone.
func (r *run) keys() map[wish]bool {
	found := map[wish]bool{}
	for w := range r.all() {
		found[wish{item: w.item, key: w.key}] = true
	}
	return found
}

// guarded reports whether a drift is the guard's to decide about.
func (r *run) guarded(d spec.Drift) bool {
	return r.guard != nil && (r.known == nil || r.known[wishOf(d)]) && (r.drifted == nil || r.drifted[wish{item: d.Item, key: d.Key}])
}

// giveBack gives what had drifted before a change, and the change set, the value that it
// found. Where a kind cannot do that, it counts as the change's alone.
func (r *run) giveBack(ctx context.Context, drifted map[wish]bool) {
	for _, it := range r.items {
		found := slices.DeleteFunc(slices.Clone(r.did), func(d spec.Drift) bool { return d.Item != it.Name() || !drifted[wish{item: d.Item, key: d.Key}] })
		if len(found) == 0 {
			continue
		}
		if g, ok := it.(giver); ok && g.GiveBack(ctx, found) == nil {
			continue
		}
		for _, d := range found {
			delete(drifted, wish{item: d.Item, key: d.Key})
		}
	}
}

// giver is a kind that can set again what a drift says that it found.
type giver interface {
	GiveBack(ctx context.Context, found []spec.Drift) error
}

func (r *run) preflight(ctx context.Context) {
	for n := range r.items {
		r.check(ctx, n)
	}
}

func (r *run) check(ctx context.Context, n int) {
	end := r.begin(ctx, "check", n)
	drift, err := r.items[n].Check(ctx)
	end(err)
	if err != nil {
		err = failed(r.items[n].Name(), nil, fmt.Errorf("check %s: %w", r.items[n].Name(), err))
	}
	r.drift[n], r.unseen[n] = r.judged(n, drift), err
}

// judged is drift as the guard wants it treated.
func (r *run) judged(n int, drift []spec.Drift) []spec.Drift {
	if r.guard == nil && r.fresh == nil {
		return drift
	}
	if len(r.failed[n]) > 0 {
		still := map[string]bool{}
		for _, d := range drift {
			still[d.Key] = true
		}
		for _, d := range r.failed[n] {
			if still[d.Key] {
				r.guard.Undone(d)
			}
		}
		r.failed[n] = nil
	}
	out := slices.Clone(drift)
	for i, d := range out {
		switch {
		case r.guarded(d):
			out[i] = r.guard.Judge(d, false)
		case r.fresh != nil && !r.known[wishOf(d)]:
			out[i] = r.fresh.Judge(d, true)
		}
	}
	if r.guard == nil {
		return out
	}
	return append(out, r.guard.Held(r.items[n].Name(), drift)...)
}

// restore goes backwards: what was built on something leaves before it.
func (r *run) restore(ctx context.Context) {
	for n, it := range slices.Backward(r.items) {
		left := map[string]bool{}
		for _, d := range r.drift[n] {
			if d.Action == spec.ActionRemove && !r.known[wishOf(d)] {
				left[d.Key] = true
				if d.From != d.To { // else there is nothing to put back, and only the journal forgets it
					r.did = append(r.did, d)
				}
			}
		}
		if len(left) == 0 {
			continue
		}
		r.changed = true
		entries := slices.DeleteFunc(r.journal.Entries(it.Name()), func(e item.Entry) bool { return !left[e.Key] })
		end := r.begin(ctx, "restore", n)
		err := it.Restore(ctx, entries)
		end(err)
		r.errs[n] = errors.Join(r.errs[n], failed(it.Name(), nil, err))
	}
}

func (r *run) apply(ctx context.Context) {
	for n, it := range r.items {
		if r.changed {
			r.check(ctx, n)
		}
		turns := r.turns(ctx, n)
		if m, ok := it.(rememberer); ok {
			r.errs[n] = errors.Join(r.errs[n], m.Remember(ctx))
		}
		for _, due := range turns {
			r.changed = true
			r.did = append(r.did, due...)
			counted, err := r.note(due)
			r.errs[n] = errors.Join(r.errs[n], err)
			end := r.begin(ctx, "apply", n)
			err = it.Apply(ctx, due)
			end(err)
			if err != nil {
				r.failed[n] = append(r.failed[n], counted...)
			}
			if !r.known[wishOf(due[0])] { // else the look after it shows why
				r.errs[n] = errors.Join(r.errs[n], failed(it.Name(), due, err))
			}
		}
	}
}

// turns are what is due of a kind. What was due before a change waits until it stands,
// but for scripts: they have one order, and a change's own take their turns among all
// that are due by now.
func (r *run) turns(ctx context.Context, n int) (turns [][]spec.Drift) {
	due := slices.DeleteFunc(slices.Clone(r.drift[n]), func(d spec.Drift) bool {
		return d.Action != spec.ActionAdd && d.Action != spec.ActionChange && d.Action != spec.ActionRun
	})
	known := func(d spec.Drift) bool { return r.known[wishOf(d)] }
	ordered := r.items[n].Name() == exec.Name
	if ordered && r.before != nil { // more of them are due by now
		r.before.check(ctx, n)
		maps.Copy(r.known, r.before.all())
	}
	if !ordered || !slices.ContainsFunc(due, func(d spec.Drift) bool { return !known(d) }) {
		due = slices.DeleteFunc(due, known)
	}
	for i, d := range due {
		if i == 0 || known(d) != known(due[i-1]) {
			turns = append(turns, nil)
		}
		turns[len(turns)-1] = append(turns[len(turns)-1], d)
	}
	return turns
}

// note tells the guard of corrections that are about to be made, and returns them.
func (r *run) note(due []spec.Drift) ([]spec.Drift, error) {
	if r.guard == nil {
		return nil, nil
	}
	counted := slices.DeleteFunc(slices.Clone(due), func(d spec.Drift) bool { return !r.guarded(d) })
	return counted, r.guard.Correct(counted)
}

// rememberer is an item that journals originals of what needs no change. It writes
// nothing to the system.
type rememberer interface {
	Remember(ctx context.Context) error
}

// result is the second check.
func (r *run) result(ctx context.Context) Result {
	result := Result{Health: spec.HealthOK, Drift: []spec.Drift{}, Items: []spec.ItemStatus{}}
	for n := range r.items {
		if r.changed {
			r.check(ctx, n)
		}
		status := r.status(n)
		result.Health = result.Health.And(status.State.Health())
		if u, ok := r.items[n].(interface{ Used() bool }); !ok || u.Used() {
			result.Items = append(result.Items, status)
		}
		result.Drift = append(result.Drift, r.drift[n]...)
	}
	still := map[wish]bool{}
	for _, d := range result.Drift {
		if _, well := exec.Again(d); !well {
			still[wish{item: d.Item, key: d.Key}] = true
		}
	}
	result.Changes = slices.DeleteFunc(r.did, func(d spec.Drift) bool { return still[wish{item: d.Item, key: d.Key}] })
	result.Err = r.failure()
	result.Steps = r.trace.Steps()
	return result
}

// status is what the last check says of one item. Drift that is left though
// nothing complained becomes an error of the run; what does not belong to it, such as
// a script that failed earlier, only shows.
func (r *run) status(n int) spec.ItemStatus {
	status := spec.ItemStatus{Name: r.items[n].Name(), State: spec.ItemOK}
	explained := r.errs[n] != nil
	var earlier, here []error
	wrong, quarantined := map[string]bool{}, false
	for _, d := range r.drift[n] {
		again, well := exec.Again(d)
		if !well && d.Action != spec.ActionRemove && (d.Action != spec.ActionQuarantine || d.From != d.To) {
			wrong[d.Key] = true
		}
		switch {
		case d.Action == spec.ActionReport, d.Action == spec.ActionCannot: // nothing that this node could do
		case d.Action == spec.ActionQuarantine:
			quarantined = true
		case d.Action == spec.ActionDefer:
			status.State = spec.ItemDeferred
		case well:
		case again || d.Action == spec.ActionFailed:
			earlier = append(earlier, left(d))
		case explained:
		case r.known[wishOf(d)]:
			earlier = append(earlier, left(d))
		default:
			here = append(here, left(d))
		}
	}
	r.errs[n] = errors.Join(append([]error{r.errs[n]}, here...)...)
	if err := errors.Join(append(earlier, r.unseen[n], r.errs[n])...); err != nil {
		status.State, status.Error = spec.ItemDegraded, err.Error()
	}
	if quarantined {
		status.State = spec.ItemQuarantined // whatever else is wrong is in Error
	}
	if r.unseen[n] == nil {
		status.Applied = max(0, r.items[n].Wanted()-len(wrong))
	}
	return status
}

func left(d spec.Drift) error {
	d = rules.Spelled(d)
	err := fmt.Errorf("%s %q: is %q, not %q", d.Item, d.Key, d.From, d.To)
	if d.Reason != "" {
		err = fmt.Errorf("%s %q: %s", d.Item, d.Key, d.Reason)
	}
	return failed(d.Item, []spec.Drift{d}, err)
}

func (r *run) failure() error { return errors.Join(append(slices.Clone(r.unseen), r.errs...)...) }

// refusal is what makes a change impossible before it is begun.
func (r *run) refusal() error {
	errs := slices.Clone(r.unseen)
	for _, drift := range r.drift {
		for _, d := range drift {
			if d.Action == spec.ActionRefuse && !r.known[wishOf(d)] {
				errs = append(errs, left(d))
			}
		}
	}
	return errors.Join(errs...)
}
