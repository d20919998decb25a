// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
)

// Await reads the intents of others until one is renewed, which is an error, or none
// was for so long that their publishers count as dead. Those intents it withdraws. Only looks
// that a registry answered count, whatever clocks say: neither a suspended machine that waits nor
// a registry that is away makes a publisher dead.
func (r *Reserver) Await(ctx context.Context, others []Found) error {
	at := r.Pace
	for _, o := range others {
		if !o.Renewed {
			return o.takenError(at)
		}
	}
	r.Say("waits for %s, up to %s: a running publisher renews its reservation", others[0], at.Dead)
	end := time.After(2 * at.Dead)
	for looks := 0; looks <= int(at.Dead/at.Look); {
		switch silent, err := r.areUnchanged(ctx, others, at); {
		case err != nil:
			return err
		case silent:
			looks++
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return others[0].takenError(at)
		case <-time.After(at.Look):
		}
	}
	for _, o := range others {
		r.Say("%s has not renewed fleet:%s for %s and counts as dead", o, o.Tag(), at.Dead)
		r.withdrawDead(ctx, o)
	}
	return nil
}

// withdrawDead withdraws the intent of a publisher that counts as dead.
func (r *Reserver) withdrawDead(ctx context.Context, o Found) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := r.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, o.markDead(), o.Tag()); err != nil {
		r.Say("fleet:%s could not be withdrawn: %v", o.Tag(), err)
	}
}

// areUnchanged reports whether all intents are as they were read. One that is not is an error;
// a registry that does not answer is false.
func (r *Reserver) areUnchanged(ctx context.Context, others []Found, at Pace) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, at.Beat)
	defer cancel()
	for _, o := range others {
		now, err := r.read(ctx, o.Intent)
		switch {
		case errors.Is(err, oci.ErrNotFound):
			return false, cli.WithHint(fmt.Errorf("%w: it ended meanwhile (fleet:%s)", ErrTaken, o.Tag()), "run this again")
		case err != nil:
			return false, nil
		case now.digest != o.digest:
			return false, o.takenError(at)
		}
	}
	return true, nil
}

// String names the publisher of an intent, by its own words.
func (s Found) String() string {
	return fmt.Sprintf("the publisher %.80q, at work since %s", s.By, s.At.Format(time.RFC3339))
}

// takenError returns the error for a publisher that comes while another is at work.
func (s Found) takenError(at Pace) error {
	tag := s.Tag()
	err := fmt.Errorf("%w since %s (fleet:%s)", ErrTaken, s.At.Format(time.RFC3339), tag)
	if !s.Renewed {
		return cli.WithHint(err, fmt.Sprintf("run this again when it is done; if it died, its reservation ends at %s, or add --ignore-intent %s",
			s.At.Add(Honored).Format(time.RFC3339), tag))
	}
	return cli.WithHint(fmt.Errorf("%w: %.80q", err, s.By), fmt.Sprintf("run this again when it is done, which is by %s; if it died, that shows within %s, or add --ignore-intent %s",
		s.At.Add(life).Format(time.RFC3339), at.Dead, tag))
}
