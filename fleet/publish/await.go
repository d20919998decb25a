// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
)

// awaitOthers reads the intents of others until one is renewed, which is an error, or none
// was for so long that their publishers count as dead. Those intents it withdraws. Only looks that a registry answered count, whatever clocks say: neither
// a suspended machine that waits nor a registry that is away makes a publisher dead.
func (p *Publisher) awaitOthers(ctx context.Context, others []observedIntent) error {
	at := p.currentPace()
	for _, o := range others {
		if !o.isRenewed {
			return o.takenError(at)
		}
	}
	p.Say("waits for %s, up to %s: a publisher that lives renews its reservation", others[0].describe(p.Now), at.dead)
	end := time.After(2 * at.dead)
	for looks := 0; looks <= int(at.dead/at.look); {
		switch silent, err := p.areUnchanged(ctx, others, at); {
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
		case <-time.After(at.look):
		}
	}
	for _, o := range others {
		p.Say("%s has not renewed fleet:%s for %s and counts as dead", o.describe(p.Now), o.tag(), at.dead)
		p.withdrawDead(ctx, o)
	}
	return nil
}

// withdrawDead withdraws the intent of a publisher that counts as dead.
func (p *Publisher) withdrawDead(ctx context.Context, o observedIntent) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, o.markDead(), o.tag()); err != nil {
		p.Say("fleet:%s could not be withdrawn: %v", o.tag(), err)
	}
}

// areUnchanged reports whether all intents are as they were read. One that is not is an error;
// a registry that does not answer is false.
func (p *Publisher) areUnchanged(ctx context.Context, others []observedIntent, at pace) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, at.beat)
	defer cancel()
	for _, o := range others {
		now, err := p.readIntent(ctx, o.intent)
		switch {
		case errors.Is(err, oci.ErrNotFound):
			return false, cli.WithHint(fmt.Errorf("%w: it ended meanwhile (fleet:%s)", errTaken, o.tag()), "run this again")
		case err != nil:
			return false, nil
		case now.digest != o.digest:
			return false, o.takenError(at)
		}
	}
	return true, nil
}

// describe names the publisher of an intent, by its own words.
func (s observedIntent) describe(now time.Time) string {
	return fmt.Sprintf("the publisher %.80q, which began %s ago", s.By, now.Sub(s.at).Round(time.Second))
}

// takenError returns the error for a publisher that comes while another is at work.
func (s observedIntent) takenError(at pace) error {
	tag := s.tag()
	err := fmt.Errorf("%w since %s (fleet:%s)", errTaken, s.at.Format(time.RFC3339), tag)
	if !s.isRenewed {
		return cli.WithHint(err, fmt.Sprintf("run this again when it is done; if it died, its reservation ends at %s, or add --ignore-intent %s",
			s.at.Add(intentHonored).Format(time.RFC3339), tag))
	}
	return cli.WithHint(fmt.Errorf("%w: %.80q", err, s.By), fmt.Sprintf("run this again when it is done, which is by %s; if it died, that shows within %s, or add --ignore-intent %s",
		s.at.Add(intentLife).Format(time.RFC3339), at.dead, tag))
}
