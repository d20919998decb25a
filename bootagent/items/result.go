// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Result holds the changes of a run and the state after it.
type Result struct {
	Items  []spec.ItemStatus
	Drift  []spec.Drift // of the last check; when all is well only what is deferred, and scripts that are due again
	Health spec.Health

	// Changes holds what the run did and the last check did not find again.
	Changes []spec.Drift

	// RolledBack says that a transaction failed and that the previous items were
	// put in place again; Err says why.
	RolledBack bool
	Steps      []spec.Step // how long each kind took
	Err        error
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

// status returns the verdict of the last check on one item. Drift that is left though
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

// refusal returns the error that makes a change impossible before it is begun.
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

// Wrote returns the paths that kinds have written, as a journal has them.
func Wrote(j item.Journal) (paths []string) {
	for _, kind := range []string{files.Name, modules.Name, units.Name, service.Name} {
		paths = append(paths, plain.Each(j.Entries(kind), func(e item.Entry) string { return e.Key })...)
	}
	return append(paths, plain.Each(j.Entries(accounts.Name), func(e item.Entry) string { return accounts.File(e.Key) })...)
}

// deferFor is how long something may be missing before that degrades the node: a
// module, a card or a disk that comes later is there by then; a mistyped name
// never is.
const deferFor = 10 * time.Minute

// Age gives drift the time since which it is so, and who made it so, from the drift of
// the last look, and degrades what is deferred for too long. up is how long this
// kernel runs: an older time was read from a clock that was set since.
func (r *Result) Age(last []spec.Drift, now time.Time, up time.Duration) {
	type key struct {
		item, key string
		deferred  bool
	}
	keyOf := func(d spec.Drift) key { return key{d.Item, d.Key, d.Action == spec.ActionDefer} }
	before := plain.Map(last, func(d spec.Drift) (key, spec.Drift) { return keyOf(d), d })
	late := map[string]error{}
	for n := range r.Drift {
		d := &r.Drift[n]
		if d.Item == exec.Name {
			continue // a script waits for another one, which shows by itself
		}
		was := before[keyOf(*d)]
		if d.Rival == spec.RivalUnknown && was.Rival != "" && was.From == d.From {
			d.Rival = was.Rival
		}
		if d.Since.IsZero() && !was.Since.After(now) && now.Sub(was.Since) <= up {
			d.Since = was.Since
		}
		if d.Since.IsZero() {
			d.Since = now.UTC().Truncate(time.Second)
		}
		if d.Action != spec.ActionDefer {
			continue
		}
		if missing := now.Sub(d.Since); missing > deferFor {
			late[d.Item] = errors.Join(late[d.Item], fmt.Errorf("%w; for %v", left(*d), missing.Truncate(time.Minute)))
		}
	}
	for n := range r.Items {
		s := &r.Items[n]
		if err := late[s.Name]; err != nil {
			if s.Error != "" {
				err = errors.Join(errors.New(s.Error), err)
			}
			s.State, s.Error = spec.ItemDegraded, err.Error()
		}
	}
	if len(late) > 0 {
		r.Health = r.Health.And(spec.HealthDegraded)
	}
}

// Deferred reports whether a setting is one that could not be set yet.
func Deferred(drift []spec.Drift, item, key string) bool {
	return slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionDefer && d.Item == item && d.Key == key })
}

// Explain gives a kind the error of the last run where a look finds the same of it:
// a look sees what is not as wanted, and a run knows why.
func (r *Result) Explain(last []spec.ItemStatus, drift []spec.Drift) {
	of := func(list []spec.Drift, kind string) map[wish]string {
		found := map[wish]string{}
		for _, d := range list {
			if d.Item == kind {
				found[wishOf(d)] = d.Action
			}
		}
		return found
	}
	errs := plain.Map(last, func(s spec.ItemStatus) (name, text string) { return s.Name, s.Error })
	for n := range r.Items {
		s := &r.Items[n]
		if s.Error != "" && errs[s.Name] != "" && maps.Equal(of(r.Drift, s.Name), of(drift, s.Name)) {
			s.Error = errs[s.Name]
		}
	}
}

// failure is an error of a run with what it is about.
type failure struct {
	item, key string
	err       error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed says of an error what it is about; the key only where it can be no other.
func failed(item string, what []spec.Drift, err error) error {
	if err == nil {
		return nil
	}
	f := &failure{item: item, err: err}
	if len(what) == 1 {
		f.key = what[0].Key
	}
	return f
}

// About says of an error of a run which kind it is about.
func About(item string, err error) error { return failed(item, nil, err) }

// Culprit returns what the first error of a run is about, "" where that is not known.
func Culprit(err error) (item, key string) {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return "", ""
	}
	return f.item, f.key
}

// Doing names the act that a run is at, for the watchdog that has to end it from outside.
type Doing struct{ at atomic.Pointer[[2]string] }

// Step returns the step, and the kind that it is of; "" before the first.
func (d *Doing) Step() (step, item string) {
	if at := d.at.Load(); at != nil {
		return at[0], at[1]
	}
	return "", ""
}

type doingKey struct{}

// Tell has the runs under a context say in d what they are at.
func Tell(ctx context.Context, d *Doing) context.Context {
	return context.WithValue(ctx, doingKey{}, d)
}

// begin notes that a step of a kind begins, until end.
func (r *run) begin(ctx context.Context, what string, n int) (end func(error)) {
	item := r.items[n].Name()
	if d, ok := ctx.Value(doingKey{}).(*Doing); ok {
		d.at.Store(&[2]string{what + " " + item, item})
	}
	return r.trace.Begin(what + " " + item)
}
