// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// applyPause puts a generation in effect that says that nothing is to be changed.
func (c *Cycle) applyPause(ctx context.Context, next *track.Found, why string) (*spec.Status, error) {
	c.Say("nothing is changed now: %s", why)
	if err := c.cycle(ctx, &turn{event: decide.Effect, next: next, rests: true}); err != nil {
		return nil, err
	}
	c.Boot.Live.TakenBack = nil
	if err := c.Remember(); err != nil {
		return nil, err
	}
	result := c.effect.Look(ctx, next)
	if err := c.effect.Counted(c.effect.Corrections().Save()); err != nil {
		return nil, err
	}
	return c.look.Report(next, result)
}
