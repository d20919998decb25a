// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// A registry has no compare-and-swap, so a publisher announces itself: it puts a
// tag "intent-EPOCH-GENERATION-TIME-NONCE" for the generation that it is about to
// give out, lists all tags, and withdraws when another publisher's intent for that
// generation or a later one is there. Then it looks whether fleet:index is still
// the one it started from. Of two publishers at most one goes on, in whatever order
// their steps fall; both may withdraw. What a registry must guarantee: a tag that
// was put is in every list that is asked for afterwards, and leads everyone who
// reads it afterwards to what was put last.
//
// Whoever goes on renews its intent ([lease]) and writes only as long as it can. An
// intent that others see unchanged for long enough is withdrawn by them ([Publisher.awaitOthers]),
// which then begin as if it had never been, after the generation that it was for: its
// mark stays until fleet:index is past that.

// errTaken is returned where another publisher is at work.
var errTaken = errors.New("another publisher is at work")

// runAlone runs f while no other publisher changes the fleet. Where one does it waits for
// as long as it may, or returns an error that says what to do.
func (p *Publisher) runAlone(ctx context.Context, policy Policy, why purpose, f func(context.Context, *Publisher, *registry.Batch, *view) error) error {
	if p.Dry {
		return p.runDry(ctx, policy, why, f)
	}
	began, run := time.Now(), *p
	for {
		alone := false
		err := run.tryAlone(ctx, policy, why, func(ctx context.Context, p *Publisher, b *registry.Batch, v *view) error {
			alone = true
			return f(ctx, p, b, v)
		})
		left := p.Wait - time.Since(began)
		if alone || !errors.Is(err, errTaken) || left <= 0 {
			return err
		}
		p.Say("%v: waits up to %s", err, left.Round(time.Second))
		at := p.currentPace()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, at.look/2+mathrand.N(2*at.look))): // those that wait are not to come together
		}
		run.Now = p.Now.Add(time.Since(began).Truncate(time.Second))
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
		if err := run.awaitOthers(ctx, others); err != nil {
			return err
		}
	}
	return cli.WithHint(fmt.Errorf("%w: it came while this one waited for another that died", errTaken), "run this again")
}

// begin looks at what is published.
func (p *Publisher) begin(ctx context.Context, policy Policy, why purpose) (*Publisher, *view, error) {
	v, err := p.look(ctx, policy, why)
	if err != nil {
		return nil, nil, err
	}
	run := *p
	run.Now, err = p.issueTime(ctx, v)
	return &run, v, err
}

// runReserved runs f between the announcement of a generation and its withdrawal,
// or returns the intents that are in the way.
func (p *Publisher) runReserved(ctx context.Context, v *view, f func(context.Context, *Publisher) error) (others []observedIntent, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, intentLife, errors.New("this publish took too long: another may have begun"))
	defer cancel()
	l, around, err := p.reserve(ctx, v)
	if l == nil {
		return around.others, err
	}
	run := *p
	run.lease, run.Registry = l, p.Registry.While(l.checkHeld)
	if err := l.renewWhile(ctx, func(ctx context.Context) error { return f(ctx, &run) }); err != nil {
		return nil, err
	}
	for _, dead := range around.dead {
		if l.given > dead.Reserves { // the index says now what the mark did
			p.withdraw(ctx, dead.intent, nil)
		}
	}
	return nil, nil
}

// reserve puts an intent and sees whether it is the only one.
func (p *Publisher) reserve(ctx context.Context, v *view) (*lease, foundIntents, error) {
	nonce := make([]byte, 6)
	if _, err := rand.Read(nonce); err != nil {
		return nil, foundIntents{}, err
	}
	mine := intent{generation: 1, at: p.Now, nonce: hex.EncodeToString(nonce)}
	if v.index != nil {
		mine.epoch, mine.generation = v.index.Root.Epoch, v.index.Root.Generation+1
	}
	if err := p.Registry.PutData(ctx, oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		return nil, foundIntents{}, err
	}
	l := &lease{p: p, intent: mine, announcement: announcement{By: p.Author, Reserves: max(mine.generation, v.seen.Reserved+1)}, pace: p.currentPace()}
	if err := l.put(ctx); err != nil {
		return nil, foundIntents{}, err
	}
	seen, err := p.findIntents(ctx, mine)
	if err == nil && len(seen.others) == 0 {
		err = p.sameIndex(ctx, v.manifest)
	}
	for _, dead := range seen.dead {
		v.seen.Reserved = max(v.seen.Reserved, dead.Reserves)
	}
	if err == nil && l.Reserves <= v.seen.Reserved && len(seen.others) == 0 {
		l.Reserves = v.seen.Reserved + 1
		err = l.put(ctx)
	}
	if err != nil || len(seen.others) > 0 {
		l.withdraw(ctx)
		return nil, seen, err
	}
	return l, seen, nil
}

// foundIntents are the intents of others.
type foundIntents struct {
	others []observedIntent // in the way
	dead   []observedIntent // no generation that these were for is given out again
}

// findIntents finds the intents of others for this generation or a later one.
func (p *Publisher) findIntents(ctx context.Context, mine intent) (found foundIntents, err error) {
	tags, err := p.Registry.Tags(ctx, oci.RepoFleet)
	if err != nil {
		return found, fmt.Errorf("list the intents: %w", err)
	}
	for _, tag := range tags {
		other, ok := parseIntent(tag)
		if !ok || tag == mine.tag() || p.Now.Sub(other.at) > intentHonored {
			continue
		}
		// The generation before mine may be one that is only reserved yet.
		if other.epoch < mine.epoch || other.epoch == mine.epoch && other.generation+1 < mine.generation {
			continue
		}
		s, err := p.readIntent(ctx, other)
		// An intent of another epoch, or far ahead, names no generation to begin after.
		near := other.epoch == mine.epoch && max(s.Reserves, other.generation) <= mine.generation+maxReserved
		ignored := tag == p.IgnoreIntent && !s.isWithdrawn
		if ignored {
			p.withdrawDead(ctx, s) // so that it stops, should it live
		}
		switch {
		case (s.isDead || ignored) && near:
			s.Reserves = max(s.Reserves, other.generation)
			found.dead = append(found.dead, s)
		case errors.Is(err, oci.ErrNotFound) || ignored:
		default: // what cannot be read stands, and shows no sign of life
			s.isRenewed = err == nil && s.isRenewed && near
			found.others = append(found.others, s)
		}
	}
	return found, nil
}

func (p *Publisher) sameIndex(ctx context.Context, manifest string) error {
	resp, err := p.Registry.Source().Manifest(ctx, oci.RepoFleet, "index", "")
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return err
	}
	if resp.Digest != manifest {
		return cli.WithHint(fmt.Errorf("%w: fleet:index changed meanwhile", errTaken), "run this again")
	}
	return nil
}
