// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"sync/atomic"
)

// Doing is what a run is at, for whoever has to end it from outside.
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
