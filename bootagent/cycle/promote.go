// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/state"
)

// keepGood makes a generation the current one.
func (c *Cycle) keepGood(g state.Generation, why string) error {
	s, err := c.Folder.Load()
	if err != nil {
		return err
	}
	fields := []events.Field{events.With("generation", g.Generation), events.With("epoch", g.Epoch), events.With("overlay", g.Overlay), events.With("why", why)}
	if g.IsAhead() {
		fields = append(fields, events.With("on", g.Layer), events.With("waits", g.Waits))
	}
	c.RecordStep("promoted", fields...)
	s.Prove(g, c.root.LayersHere(s)...)
	if err := c.Folder.Save(s); err != nil {
		return err
	}
	c.destination.Tidy(s)
	return nil
}
