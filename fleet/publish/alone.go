// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/registry"
)

// run is a change of a fleet at work, while no other publisher changes it.
type run struct {
	*base
	batch *registry.Batch

	plan   *plan          // what is written
	own    *published.Own // what it rests on; nil where somebody else has given out some of that
	result *Result
	after  func() error // is called once it is written; nil is nothing

	mu       sync.Mutex // of all that the work on several nodes notes
	read     map[string]release.Layer
	released map[string]error // what the release keys say of layers
}

// base is what a change goes on from.
type base struct {
	*published.Fleet
	v *view
	p *Publisher // has the time and the registry of this run
}

// view is what is published, as it is changed in step with what is written.
type view struct {
	*published.State
	torn map[string]bool // nodes whose tag a publish that was cut has moved, see adoptMoves
}

// baseOf returns what a publisher goes on from.
func (p *Publisher) baseOf(f *published.Fleet) *base {
	return &base{f, &view{State: f.State()}, p}
}

// change has plan say what becomes of a fleet that is published, and writes it as the next
// generation. Nodes whose tag a publish that was cut has moved get again what their row says.
func (p *Publisher) change(ctx context.Context, verb string, by By, plan func(context.Context, *run) error) (*Result, error) {
	return p.runAlone(ctx, p.Trusted(), published.Purpose{Half: true}, func(ctx context.Context, r *run) error {
		if err := r.mayChange(); err != nil {
			return err
		}
		r.begin(verb, by, r.v.following())
		if err := plan(ctx, r); err != nil {
			return err
		}
		if err := r.repairTags(ctx); err != nil {
			return err
		}
		touched := map[string]bool{}
		for _, w := range r.plan.todo {
			touched[w.name] = true
		}
		for _, line := range slices.Concat(r.result.Held, r.result.Ended) {
			touched[line.Node] = true
		}
		r.result.Unchanged += r.plan.index.Len() - len(touched)
		if err := r.write(ctx, r.v.Policy); err != nil || r.after == nil || p.Dry {
			return err
		}
		return r.after()
	})
}

// Alone runs f while no other publisher changes the fleet, whose word the publisher trusts.
func (p *Publisher) Alone(ctx context.Context, f func(context.Context, *published.Reader, *registry.Batch) error) error {
	_, err := p.runAlone(ctx, *p.Trust, published.Purpose{}, func(ctx context.Context, r *run) error { return f(ctx, &r.p.Reader, r.batch) })
	return err
}

// mayChange refuses a registry without a fleet, and signers that do not count.
func (r *run) mayChange() error {
	if r.v.Index == nil {
		return r.p.Unpublished()
	}
	return r.p.checkSigners(r.v.Policy)
}

// begin makes an index what is written.
func (r *run) begin(verb string, by By, x *index.Index) {
	r.plan = &plan{by: by, verb: verb, index: x, reject: r.v.Rejected()}
	r.result = newResult(x.Root)
}

// runAlone runs f while no other publisher changes the fleet, and returns what f made of the
// result. Where another one does it waits for as long as it may, or returns an error that says what
// to do.
func (p *Publisher) runAlone(ctx context.Context, policy published.Policy, why published.Purpose,
	f func(context.Context, *run) error) (result *Result, err error) {
	alone := false
	work := func(ctx context.Context, r *run) error {
		alone = true
		defer func() { result = r.result }()
		return f(ctx, r)
	}
	if p.Dry {
		err = p.runDry(ctx, policy, why, work)
		return result, err
	}
	began := time.Now()
	for {
		err := p.tryAlone(ctx, policy, why, work)
		left := p.Wait - time.Since(began)
		if alone || !errors.Is(err, reserve.ErrTaken) || left <= 0 {
			return result, err
		}
		p.Say("%v: waits up to %s", err, left.Round(time.Second))
		look := p.reserver().Pace.Look
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(left, look/2+rand.N(2*look))): // those that wait are not to come together
		}
	}
}

// tryAlone is [Publisher.runAlone] of one who waits for nobody that lives. On a layout its
// lock keeps others out, held since before the first read.
func (p *Publisher) tryAlone(ctx context.Context, policy published.Policy, why published.Purpose,
	f func(context.Context, *run) error) (err error) {
	batch, err := p.Registry.Batch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	for range 2 {
		is, err := p.begin(ctx, policy, why)
		if err != nil {
			return err
		}
		work := func(ctx context.Context, is *base) error {
			if err := is.adoptMoves(ctx); err != nil {
				return err
			}
			return f(ctx, &run{base: is, batch: batch})
		}
		if p.Registry.Ref().IsLayout() {
			return work(ctx, is)
		}
		others, err := is.runReserved(ctx, work)
		if err != nil || len(others) == 0 {
			return err
		}
		if err := is.p.reserver().Await(ctx, others); err != nil {
			return err
		}
	}
	return cli.WithHint(fmt.Errorf("%w: it came while this one waited for another that died", reserve.ErrTaken), "run this again")
}

// begin looks at what is published.
func (p *Publisher) begin(ctx context.Context, policy published.Policy, why published.Purpose) (*base, error) {
	q := *p
	q.Now = p.now()
	if err := p.Memory.Again(); err != nil { // this one may have waited for another of its folder
		return nil, err
	}
	f, err := q.Open(ctx, policy, why)
	if err != nil {
		return nil, err
	}
	q.Now, err = f.IssueTime(ctx, q.now())
	return q.baseOf(f), err
}

// runReserved runs work while the next generation is reserved, or returns the intents of other
// publishers, which are in the way.
func (f *base) runReserved(ctx context.Context, work func(context.Context, *base) error) (others []reserve.Found, err error) {
	v := f.v
	from := reserve.Start{Manifest: v.Manifest, Generation: 1, Reserved: v.Seen.Reserved}
	if v.Index != nil {
		from.Epoch, from.Generation = v.Index.Root.Epoch, v.Index.Root.Generation+1
	}
	return f.p.reserver().Run(ctx, from, func(ctx context.Context, l *reserve.Lease) error {
		q := *f.p
		q.lease, q.Registry, q.Now = l, f.p.Registry.While(l.CheckHeld), f.p.now()
		v.Seen.Reserved = l.After
		return work(ctx, &base{f.With(&q.Reader), v, &q})
	})
}

// reserver announces what this publisher writes.
func (p *Publisher) reserver() *reserve.Reserver {
	r := &reserve.Reserver{Registry: p.Registry, Now: p.Now, Say: p.Say, By: p.Author, Ignore: p.IgnoreIntent, Pace: reserve.Usual}
	if p.pace != nil {
		r.Pace = *p.pace
	}
	return r
}

// now returns the time behind a wait. It never goes back.
func (p *Publisher) now() time.Time {
	if p.Clock != nil {
		if now := p.Clock(); now.After(p.Now) {
			return now
		}
	}
	return p.Now
}
