// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/soak"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// again is how long after a look the next one is due, when none was found to be.
const again = time.Minute

// Judge does what follows from a look at the checks of what was in effect before it.
func (c *Cycle) Judge(ctx context.Context, before *soak.Judged, looked gate.Record) (wait time.Duration, st *spec.Status, err error) {
	if err := c.Settle(ctx); err != nil { // else what is undone and what is judged would be put back at once
		return 0, nil, err
	}
	now, err := c.soak.Judging()
	if err != nil || now == nil {
		return 0, nil, err
	}
	if now.Record.Overlay != before.Record.Overlay || now.Record.Began != before.Record.Began {
		return time.Second, nil, nil // another change was put in effect
	}
	if err := looked.Save(c.Path(paths.RunGates)); err != nil {
		return 0, nil, err
	}
	now.Record = looked
	t := &turn{event: decide.Judged, next: now.Found, judged: now}
	if err := c.cycle(ctx, t); err != nil || t.status == nil {
		return t.wait, t.status, err
	}
	return t.wait, t.status, c.look.Keep(t.status)
}
