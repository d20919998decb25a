// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"github.com/caisson-os/caisson/spec"
)

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
	errs := map[string]string{}
	for _, s := range last {
		errs[s.Name] = s.Error
	}
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
	var f *failure
	if !errors.As(err, &f) {
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
