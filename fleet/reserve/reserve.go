// SPDX-License-Identifier: Apache-2.0

// Package reserve lets one publisher at a time change a fleet on a registry server.
//
// A registry has no compare-and-swap, so a publisher announces itself: it puts a
// tag "intent-EPOCH-GENERATION-TIME-NONCE" for the generation that it is about to
// give out, lists all tags, and withdraws when another publisher's intent for that
// generation or a later one is there. Then it looks whether fleet:index is still
// the one it started from. Of two publishers at most one goes on, in whatever order
// their steps fall; both may withdraw. What a registry must guarantee: a tag that
// was put is in every list that is asked for afterwards, and leads everyone who
// reads it afterwards to what was put last.
//
// A publisher that goes on renews its intent ([Lease]) and writes only as long as it can. An
// intent that others see unchanged for long enough is withdrawn by them ([Reserver.Await]),
// which then begin as if it had never been, after the generation that it was for: its
// mark stays until fleet:index is past that.
//
// It knows generations and tags, not what is published: package publish reads, decides and
// writes.
package reserve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// ErrTaken is returned where another publisher is at work.
var ErrTaken = errors.New("another publisher is at work")

// Reserver announces what a publisher is about to write.
type Reserver struct {
	Registry *registry.Registry // a server: of a layout a lock keeps others out
	Now      time.Time          // of the announcement
	Say      func(format string, args ...any)
	By       string // who is at work, for those who wait for it
	Ignore   string // tag of a publisher that died
	Pace     Pace
}

// Start holds what a publisher has found, before it announces itself.
type Start struct {
	Manifest   string // digest of fleet:index's manifest, "" where nothing is published
	Epoch      uint64
	Generation uint64 // that is given out next, by fleet:index
	Reserved   uint64 // the highest that was ever given out or reserved, as far as the publisher remembers
}

// Run runs f between the announcement of a generation and its withdrawal, or returns the
// intents that are in the way; see [Reserver.Await].
func (r *Reserver) Run(ctx context.Context, from Start, f func(context.Context, *Lease) error) (others []Found, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, life, errors.New("this publish took too long: another may have begun"))
	defer cancel()
	l, around, err := r.announce(ctx, from)
	if l == nil {
		return around.others, err
	}
	if err := l.renewWhile(ctx, func(ctx context.Context) error { return f(ctx, l) }); err != nil {
		return nil, err
	}
	for _, dead := range around.dead {
		if l.given > dead.Reserves { // the index says now what the mark did
			r.withdraw(ctx, dead.Intent, nil)
		}
	}
	return nil, nil
}

// announce puts an intent and sees whether it is the only one.
func (r *Reserver) announce(ctx context.Context, from Start) (*Lease, around, error) {
	nonce := make([]byte, 6)
	rand.Read(nonce) // which never fails
	mine := Intent{Epoch: from.Epoch, Generation: from.Generation, At: r.Now, Nonce: hex.EncodeToString(nonce)}
	if err := r.Registry.PutData(ctx, oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		return nil, around{}, err
	}
	l := &Lease{After: from.Reserved, r: r, Intent: mine,
		Announcement: Announcement{By: r.By, Reserves: max(mine.Generation, from.Reserved+1)}}
	if err := l.put(ctx); err != nil {
		return nil, around{}, err
	}
	seen, err := r.find(ctx, mine)
	if err == nil && len(seen.others) == 0 {
		err = r.SameIndex(ctx, from.Manifest)
	}
	for _, dead := range seen.dead {
		l.After = max(l.After, dead.Reserves)
	}
	if err == nil && l.Reserves <= l.After && len(seen.others) == 0 {
		l.Reserves = l.After + 1
		err = l.put(ctx)
	}
	if err != nil || len(seen.others) > 0 {
		l.withdraw(ctx)
		return nil, seen, err
	}
	return l, seen, nil
}

// around are the intents of others.
type around struct {
	others []Found // in the way
	dead   []Found // no generation that these were for is given out again
}

// find finds the intents of others for a generation or a later one.
func (r *Reserver) find(ctx context.Context, mine Intent) (found around, err error) {
	standing, over, err := r.tagged(ctx)
	if err != nil {
		return found, err
	}
	if over > 0 {
		r.Say("%s of earlier publishes stayed in the registry: 'caisson prune' removes them, where the registry removes tags",
			plain.Count(over, "reservation"))
	}
	for _, other := range standing {
		if other == mine || other.Epoch < mine.Epoch {
			continue
		}
		read := r.read
		if other.Epoch == mine.Epoch && other.Generation+1 < mine.Generation {
			read = r.readOnce // it is over, most often, and a registry may list what it has no more
		}
		s, err := read(ctx, other)
		// The generation before mine may be one that is only reserved yet, by one whose tag names an
		// earlier one.
		if err == nil && other.Epoch == mine.Epoch && max(s.Reserves, other.Generation)+1 < mine.Generation {
			continue
		}
		// An intent of another epoch, or far ahead, names no generation to begin after.
		near := other.Epoch == mine.Epoch && max(s.Reserves, other.Generation) <= mine.Generation+maxAhead
		ignored := other.Tag() == r.Ignore && !s.withdrawn
		if ignored {
			r.withdrawDead(ctx, s) // so that it stops, should it live
		}
		switch {
		case (s.dead || ignored) && near:
			s.Reserves = max(s.Reserves, other.Generation)
			found.dead = append(found.dead, s)
		case errors.Is(err, oci.ErrNotFound) || ignored:
		default: // what cannot be read stands, and shows no sign of life
			s.Renewed = err == nil && s.Renewed && near
			found.others = append(found.others, s)
		}
	}
	return found, nil
}

// tagged returns the intents that have a tag and are not too old to count, and how many are.
func (r *Reserver) tagged(ctx context.Context) (list []Intent, over int, err error) {
	tags, err := r.Registry.Tags(ctx, oci.RepoFleet)
	if err != nil {
		return nil, 0, fmt.Errorf("list the intents: %w", err)
	}
	for _, tag := range tags {
		switch i, ok := Parse(tag); {
		case ok && i.IsOver(r.Now):
			over++
		case ok:
			list = append(list, i)
		}
	}
	return list, over, nil
}

// Standing returns the intents that nobody has withdrawn.
func (r *Reserver) Standing(ctx context.Context) (list []Found, err error) {
	tagged, _, err := r.tagged(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range tagged {
		if s, err := r.read(ctx, i); err == nil {
			list = append(list, s)
		} else if !errors.Is(err, oci.ErrNotFound) {
			return nil, err
		}
	}
	return list, nil
}

// SameIndex is [ErrTaken] where fleet:index has another manifest than this one, "" for none.
func (r *Reserver) SameIndex(ctx context.Context, manifest string) error {
	resp, err := r.Registry.Source().Manifest(ctx, oci.RepoFleet, "index", "")
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return err
	}
	if resp.Digest != manifest {
		return cli.WithHint(fmt.Errorf("%w: fleet:index changed meanwhile", ErrTaken), "run this again")
	}
	return nil
}
