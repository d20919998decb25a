// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
)

// Ask notes that an operator wants an operation of what runs to run: now, or else again, in
// its windows; runs is true where it runs already.
func (op *Operations) Ask(found *track.Found, name string, atOnce bool) (runs bool, err error) {
	if runs, err = op.Engine(found).Ask(found.Overlay.Maintenance, name, atOnce); err != nil || runs {
		return runs, err
	}
	what := "asked for again"
	if atOnce {
		what = "asked for now"
	}
	op.Record("operation", events.With("operation", name), events.With("what", what))
	return false, nil
}
