// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/refusal"
)

// times are the clocks that a time of issue is compared with.
type times struct {
	now      time.Time
	registry time.Time // zero when it does not say
	newest   time.Time // newest time of issue of all that is published
}

// clockChecks is the rule for the time that is about to be signed. A date far in
// the future outlives every correction: nodes never go back behind it.
var clockChecks = check.List[*times]{
	{Name: "clock and registry", OK: registryAgrees},
	{Name: "clock and last issue", OK: timeGoesOn},
}

const (
	maxSkew   = time.Hour       // between this machine and the registry
	smallSkew = release.MaxSkew // between two publishers
)

func registryAgrees(t *times) error {
	if d := t.now.Sub(t.registry); !t.registry.IsZero() && (d > maxSkew || d < -maxSkew) {
		return cli.WithHint(refusal.New(refusal.Validity, "this machine's clock says %s, the registry's %s", t.now.Format(time.RFC3339), t.registry.Format(time.RFC3339)), "set the clock of the machine that signs")
	}
	return nil
}

func timeGoesOn(t *times) error {
	if t.now.Add(smallSkew).Before(t.newest) {
		return cli.WithHint(refusal.New(refusal.Validity, "this machine's clock says %s, the last publish was at %s", t.now.Format(time.RFC3339), t.newest.Format(time.RFC3339)), "set the clock of the machine that signs; if the last publish was wrong, see docs/security.md")
	}
	return nil
}

// now returns the time behind a wait. It never goes back.
func (p *Publisher) now() time.Time {
	if p.Clock == nil {
		return p.Now
	}
	return latest(p.Now, p.Clock())
}

// issueTime returns the time to sign: now, or a second after the newest that is
// published, so that what is newer always has the later date.
func (f *Fleet) issueTime(ctx context.Context) (time.Time, error) {
	p, v := f.p, f.v
	date, _ := p.Registry.Date(ctx) // zero when it has none
	t := &times{now: p.now(), registry: date, newest: v.newest}
	if err := p.allRules().clock.Run(t); err != nil {
		return time.Time{}, err
	}
	return latest(t.now, v.newest.Add(time.Second)), nil
}
