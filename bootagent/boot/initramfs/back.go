// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/memory"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// fallBack prepares the best of what was good before, by the ways that package decide lists.
func (b *boot) fallBack(ctx context.Context) (*track.Found, *spec.Layer, error) {
	f := b.follower()
	if s, err := b.folder.Load(); err == nil && f.Identity.Node == "" {
		f.Identity.Node = s.DHCPName
	}
	good, err := f.Good(b.heard)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for n, way := range decide.WaysBack(len(good), b.source != nil) {
		if n == len(good) {
			errs = nil // those of the disk: what is fetched next may complete it
		}
		found := good[way.At]
		layer, err := b.prepareOlder(ctx, found, way.Fetch)
		if err == nil || errors.Is(err, errStartOver) {
			b.passedOver(errs)
			return found, layer, err
		}
		errs = append(errs, fmt.Errorf("generation %d: %w", found.Generation.Generation, err))
	}
	return nil, nil, errors.Join(errs...)
}

func (b *boot) prepareOlder(ctx context.Context, found *track.Found, fetch bool) (*spec.Layer, error) {
	if fetch {
		return b.prepareInTime(ctx, b.source, found)
	}
	whole := *found
	whole.Unchanged = b.source == nil // else its kernel may still be fetched
	return b.prepare(ctx, nil, &whole)
}

// passedOver says what ran well and cannot run any more, where something older can: the
// disk has lost it.
func (b *boot) passedOver(errs []error) {
	for _, err := range errs {
		b.trouble("the last good generation cannot run: %v", err)
	}
}

// backFacts returns the facts that decide how the loader goes on after it has looked for what ran
// well before. hindered is since when what failed may come of the arguments of a kexec.
func (b *boot) backFacts(found bool, hindered time.Time) *decide.Facts {
	f := &decide.Facts{Event: decide.Sought, Back: decide.Back{Found: found, Overdue: b.overdue()}}
	if b.afterKexec() && time.Since(hindered) > b.limits.only {
		f.Back.Kexec = fmt.Sprintf("nothing was reached, nothing came, or memory was lacking, for %s under the arguments of a kexec, which may be why", b.limits.only)
	}
	return f
}

// reached reports whether somebody answered, for all that an error came of it: a layer that is
// too large or too slow is one that a registry has.
func reached(err error) bool {
	sync, _ := track.Describe(err)
	return sync != spec.SyncUnreachable || errors.Is(err, oci.ErrNotFound) || errors.Is(err, errSlow) || tooLittle(err)
}

// argumentsMay reports whether an error may come of the arguments of this kernel: they can cut a
// machine off, keep large packets from it, and take its memory. brought is what came before it.
func argumentsMay(err error, brought spec.Bytes) bool {
	return !reached(err) || tooLittle(err) || errors.Is(err, errSlow) && brought.Fetched == 0
}

// tooLittle reports whether the images do not fit into memory.
func tooLittle(err error) bool {
	var little *memory.TooLittle
	return errors.As(err, &little)
}
