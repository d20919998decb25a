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

// Run is a change of a fleet at work, while no other publisher changes it.
type Run struct {
	*published.Fleet
	State     *published.State // in step with what is written
	Publisher *Publisher       // has the time and the registry of this run
	Plan      *Plan            // what is written
	Own       *published.Own   // what it rests on; nil where somebody else has given out some of that
	Result    *Result

	torn  map[string]bool // nodes whose tag a publish that was cut has moved, see adoptMoves
	batch *registry.Batch

	mu       sync.Mutex // of what is known of layers
	read     map[string]release.Layer
	released map[string]error // what the release keys say of them
}

// Run returns what a change of a fleet goes on from. Nothing is kept from others.
func (p *Publisher) Run(f *published.Fleet) *Run {
	return &Run{Fleet: f, State: f.State(), Publisher: p}
}

// Change has plan say what becomes of a fleet that is published, and writes it as the next
// generation. Nodes whose tag a publish that was cut has moved get again what their row says.
func (p *Publisher) Change(ctx context.Context, verb string, by By, plan func(context.Context, *Run) error) (*Result, error) {
	return p.RunAlone(ctx, p.Trusted(), published.Purpose{Half: true}, func(ctx context.Context, r *Run) error {
		if err := r.mayChange(); err != nil {
			return err
		}
		r.Begin(verb, by, r.following())
		if err := plan(ctx, r); err != nil {
			return err
		}
		if err := r.repairTags(ctx); err != nil {
			return err
		}
		touched := map[string]bool{}
		for _, w := range r.Plan.Todo {
			touched[w.Name] = true
		}
		for _, line := range slices.Concat(r.Result.Held, r.Result.Ended) {
			touched[line.Node] = true
		}
		r.Result.Unchanged += r.Plan.Index.Len() - len(touched)
		if err := r.Write(ctx, r.State.Policy); err != nil || r.Plan.written == nil || p.Dry {
			return err
		}
		return r.Plan.written()
	})
}

// Alone runs f while no other publisher changes the fleet, whose word the publisher trusts.
func (p *Publisher) Alone(ctx context.Context, f func(context.Context, *published.Reader, *registry.Batch) error) error {
	_, err := p.RunAlone(ctx, *p.Trust, published.Purpose{}, func(ctx context.Context, r *Run) error {
		return f(ctx, &r.Publisher.Reader, r.batch)
	})
	return err
}

// mayChange refuses a registry without a fleet, and signers that do not count.
func (r *Run) mayChange() error {
	if r.State.Index == nil {
		return r.Publisher.Unpublished()
	}
	return r.Publisher.checkSigners(r.State.Policy)
}

// Begin makes an index what is written.
func (r *Run) Begin(verb string, by By, x *index.Index) {
	r.Plan = &Plan{by: by, verb: verb, Index: x, reject: r.State.Rejected()}
	r.Result = newResult(x.Root)
}

// RunAlone runs f while no other publisher changes the fleet, and returns what f made of the
// result. Where another one does it waits for as long as it may, or returns an error that says what
// to do.
func (p *Publisher) RunAlone(ctx context.Context, policy published.Policy, why published.Purpose,
	f func(context.Context, *Run) error) (result *Result, err error) {
	alone := false
	work := func(ctx context.Context, r *Run) error {
		alone = true
		defer func() { result = r.Result }()
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

// tryAlone is [Publisher.RunAlone] of one who waits for nobody that lives. On a layout its
// lock keeps others out, held since before the first read.
func (p *Publisher) tryAlone(ctx context.Context, policy published.Policy, why published.Purpose,
	f func(context.Context, *Run) error) (err error) {
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
		work := func(ctx context.Context, is *Run) error {
			if err := is.adoptMoves(ctx); err != nil {
				return err
			}
			is.batch = batch
			return f(ctx, is)
		}
		if p.Registry.Ref().IsLayout() {
			return work(ctx, is)
		}
		others, err := is.runReserved(ctx, work)
		if err != nil || len(others) == 0 {
			return err
		}
		if err := is.Publisher.reserver().Await(ctx, others); err != nil {
			return err
		}
	}
	return cli.WithHint(fmt.Errorf("%w: it came while this one waited for another that died", reserve.ErrTaken), "run this again")
}

// begin looks at what is published.
func (p *Publisher) begin(ctx context.Context, policy published.Policy, why published.Purpose) (*Run, error) {
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
	return q.Run(f), err
}

// runReserved runs work while the next generation is reserved, or returns the intents of other
// publishers, which are in the way.
func (r *Run) runReserved(ctx context.Context, work func(context.Context, *Run) error) (others []reserve.Found, err error) {
	v := r.State
	from := reserve.Start{Manifest: v.Manifest, Generation: 1, Reserved: v.Seen.Reserved}
	if v.Index != nil {
		from.Epoch, from.Generation = v.Index.Root.Epoch, v.Index.Root.Generation+1
	}
	return r.Publisher.reserver().Run(ctx, from, func(ctx context.Context, l *reserve.Lease) error {
		q := *r.Publisher
		q.lease, q.Registry, q.Now = l, r.Publisher.Registry.While(l.CheckHeld), r.Publisher.now()
		v.Seen.Reserved = l.After
		return work(ctx, q.Run(r.With(&q.Reader)))
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
