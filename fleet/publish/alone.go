// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/registry"
)

// runAlone runs f while no other publisher changes the fleet. Where one does it waits for
// as long as it may, or returns an error that says what to do.
func (p *Publisher) runAlone(ctx context.Context, policy Policy, why purpose, f func(context.Context, *Publisher, *registry.Batch, *view) error) error {
	if p.Dry {
		return p.runDry(ctx, policy, why, f)
	}
	began := time.Now()
	for {
		alone := false
		err := p.tryAlone(ctx, policy, why, func(ctx context.Context, p *Publisher, b *registry.Batch, v *view) error {
			alone = true
			return f(ctx, p, b, v)
		})
		left := p.Wait - time.Since(began)
		if alone || !errors.Is(err, reserve.ErrTaken) || left <= 0 {
			return err
		}
		p.Say("%v: waits up to %s", err, left.Round(time.Second))
		look := p.reserver().Pace.Look
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, look/2+rand.N(2*look))): // those that wait are not to come together
		}
	}
}

// tryAlone is [Publisher.runAlone] of one who waits for nobody that lives. On a layout its
// lock keeps others out, held since before the first read.
func (p *Publisher) tryAlone(ctx context.Context, policy Policy, why purpose, f func(context.Context, *Publisher, *registry.Batch, *view) error) (err error) {
	batch, err := p.Registry.Batch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	for range 2 {
		run, v, err := p.begin(ctx, policy, why)
		if err != nil {
			return err
		}
		work := func(ctx context.Context, run *Publisher) error {
			if err := run.adoptMoves(ctx, v); err != nil {
				return err
			}
			return f(ctx, run, batch, v)
		}
		if p.Registry.Ref().IsLayout() {
			return work(ctx, run)
		}
		others, err := run.runReserved(ctx, v, work)
		if err != nil || len(others) == 0 {
			return err
		}
		if err := run.reserver().Await(ctx, others); err != nil {
			return err
		}
	}
	return cli.WithHint(fmt.Errorf("%w: it came while this one waited for another that died", reserve.ErrTaken), "run this again")
}

// begin looks at what is published.
func (p *Publisher) begin(ctx context.Context, policy Policy, why purpose) (*Publisher, *view, error) {
	run := *p
	run.Now = p.now()
	v, err := run.look(ctx, policy, why)
	if err != nil {
		return nil, nil, err
	}
	run.Now, err = run.issueTime(ctx, v)
	return &run, v, err
}

// runReserved runs f while the next generation is reserved, or returns the intents of other
// publishers, which are in the way.
func (p *Publisher) runReserved(ctx context.Context, v *view, f func(context.Context, *Publisher) error) (others []reserve.Found, err error) {
	from := reserve.Start{Manifest: v.manifest, Generation: 1, Reserved: v.seen.Reserved}
	if v.index != nil {
		from.Epoch, from.Generation = v.index.Root.Epoch, v.index.Root.Generation+1
	}
	return p.reserver().Run(ctx, from, func(ctx context.Context, l *reserve.Lease) error {
		run := *p
		run.lease, run.Registry, run.Now = l, p.Registry.While(l.CheckHeld), p.now()
		v.seen.Reserved = l.After
		return f(ctx, &run)
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
