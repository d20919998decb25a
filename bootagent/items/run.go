// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

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
	trace   uptime.Recorder
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

// wish identifies the setting of a drift, whatever value was found there.
type wish struct{ item, key, to string }

func wishOf(d spec.Drift) wish { return wish{d.Item, d.Key, d.To} }

// all returns the drift that the last check found.
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
		found := slices.DeleteFunc(slices.Clone(r.did), func(d spec.Drift) bool {
			return d.Item != it.Name() ||
				!drifted[wish{item: d.Item, key: d.Key}]
		})
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
	r.drift[n] = r.judged(n, drift)
	r.unseen[n] = failed(r.items[n].Name(), nil, fault.In(err, "check %s", r.items[n].Name()))
}

// judged is drift as the guard wants it treated.
func (r *run) judged(n int, drift []spec.Drift) []spec.Drift {
	if r.guard == nil && r.fresh == nil {
		return drift
	}
	if len(r.failed[n]) > 0 {
		still := plain.Map(drift, func(d spec.Drift) (string, bool) { return d.Key, true })
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

// restore goes backwards: what was built on something leaves before it. What a kind before it was
// built on, as swap space in a file that a script made, is tried again when that has left.
func (r *run) restore(ctx context.Context) {
	var stays []int
	for n := range slices.Backward(r.items) {
		left, err := r.restoreKind(ctx, n)
		if err == nil && left {
			for _, m := range stays {
				r.check(ctx, m)
				_, r.errs[m] = r.restoreKind(ctx, m)
			}
			stays = slices.DeleteFunc(stays, func(m int) bool { return r.errs[m] == nil })
		}
		if r.errs[n] = err; err != nil {
			stays = append(stays, n)
		}
	}
}

// restoreKind has what left the config leave, and reports whether there was something.
func (r *run) restoreKind(ctx context.Context, n int) (left bool, err error) {
	it, keys := r.items[n], map[string]bool{}
	for _, d := range r.drift[n] {
		if d.Action == spec.ActionRemove && !r.known[wishOf(d)] {
			keys[d.Key] = true
			again := slices.ContainsFunc(r.did, func(was spec.Drift) bool { return wishOf(was) == wishOf(d) })
			if d.From != d.To && !again { // else there is nothing to put back, and only the journal forgets it
				r.did = append(r.did, d)
			}
		}
	}
	if len(keys) == 0 {
		return false, nil
	}
	r.changed = true
	entries := slices.DeleteFunc(r.journal.Entries(it.Name()), func(e item.Entry) bool { return !keys[e.Key] })
	end := r.begin(ctx, "restore", n)
	err = it.Restore(ctx, entries)
	end(err)
	return true, failed(it.Name(), nil, err)
}

// apply does what is due, kind by kind. What a kind made, an earlier one or the same may have
// waited for, as a bind of a folder waits for the mount that brings it, and a mount for the user
// who is to own it: whatever waits is looked at again.
func (r *run) apply(ctx context.Context) {
	tried := map[wish]bool{}
	for n := range r.items {
		for again := r.applyKind(ctx, n, tried); again; {
			again = false
			for m := range n + 1 {
				again = r.waits(m) && r.applyKind(ctx, m, tried) || again
			}
		}
	}
}

// waits reports whether something of a kind was not possible at its last look. Scripts wait for
// each other alone, in an order of their own.
func (r *run) waits(n int) bool {
	return r.items[n].Name() != exec.Name && slices.ContainsFunc(r.drift[n], func(d spec.Drift) bool {
		return d.Action == spec.ActionDefer || d.Action == spec.ActionRefuse
	})
}

// applyKind does what is due of one kind and was not tried, and reports whether something was.
func (r *run) applyKind(ctx context.Context, n int, tried map[wish]bool) (did bool) {
	it := r.items[n]
	if r.changed {
		r.check(ctx, n)
	}
	turns := r.turns(ctx, n)
	if m, ok := it.(rememberer); ok {
		r.errs[n] = errors.Join(r.errs[n], m.Remember(ctx))
	}
	for _, due := range turns {
		due = slices.DeleteFunc(due, func(d spec.Drift) bool { return tried[wish{item: d.Item, key: d.Key}] })
		if len(due) == 0 {
			continue
		}
		for _, d := range due {
			tried[wish{item: d.Item, key: d.Key}] = true
		}
		did, r.changed = true, true
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
	return did
}

// turns returns the drift of a kind that is due. What was due before a change waits until it
// stands, but for scripts: they have one order, and a change's own take their turns among all that
// are due by now.
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
