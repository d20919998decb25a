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

// outwait looks at the intents of others until one shows that its publisher lives,
// which is an error, or all were silent for so long that none does. Those it
// withdraws. Only looks that a registry answered count, whatever clocks say: neither
// a suspended machine that waits nor a registry that is away makes a publisher dead.
func (p *Publisher) outwait(ctx context.Context, others []standing) error {
	at := p.paced()
	for _, o := range others {
		if !o.renewed {
			return o.refuse(at)
		}
	}
	p.Say("waits for %s, up to %s: it either renews its reservation or is dead", others[0].who(p.Now), at.dead)
	end := time.After(2 * at.dead)
	for looks := 0; looks <= int(at.dead/at.look); {
		switch silent, err := p.silent(ctx, others, at); {
		case err != nil:
			return err
		case silent:
			looks++
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return others[0].refuse(at)
		case <-time.After(at.look):
		}
	}
	for _, o := range others {
		p.Say("%s has not renewed fleet:%s for %s and counts as dead", o.who(p.Now), o.tag(), at.dead)
		p.bury(ctx, o)
	}
	return nil
}

// bury withdraws the intent of a publisher that died.
func (p *Publisher) bury(ctx context.Context, o standing) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, o.markDead(), o.tag()); err != nil {
		p.Say("fleet:%s could not be withdrawn: %v", o.tag(), err)
	}
}

// silent reports whether all intents are as they were. One that is not is an error;
// a registry that does not answer is false.
func (p *Publisher) silent(ctx context.Context, others []standing, at pace) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, at.beat)
	defer cancel()
	for _, o := range others {
		now, err := p.standing(ctx, o.intent)
		switch {
		case errors.Is(err, oci.ErrNotFound):
			return false, cli.WithHint(fmt.Errorf("%w: it ended meanwhile (fleet:%s)", errTaken, o.tag()), "run this again")
		case err != nil:
			return false, nil
		case now.digest != o.digest:
			return false, o.refuse(at)
		}
	}
	return true, nil
}

// who says whose intent it is, as it says itself.
func (s standing) who(now time.Time) string {
	return fmt.Sprintf("the publisher %.80q, which began %s ago", s.By, now.Sub(s.at).Round(time.Second))
}

// refuse is the error for those that come while another is at work.
func (s standing) refuse(at pace) error {
	tag := s.tag()
	err := fmt.Errorf("%w since %s (fleet:%s)", errTaken, s.at.Format(time.RFC3339), tag)
	if !s.renewed {
		return cli.WithHint(err, fmt.Sprintf("run this again when it is done; if it died, its reservation ends at %s, or add --ignore-intent %s",
			s.at.Add(intentHonored).Format(time.RFC3339), tag))
	}
	return cli.WithHint(fmt.Errorf("%w: %.80q", err, s.By), fmt.Sprintf("run this again when it is done, which is by %s; if it died, that shows within %s, or add --ignore-intent %s",
		s.at.Add(intentLife).Format(time.RFC3339), at.dead, tag))
}
