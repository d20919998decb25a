// SPDX-License-Identifier: Apache-2.0

package events

import (
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Kmsg is the kernel's log, the last lines of which say what a failure was.
const Kmsg = "/dev/kmsg"

// Note puts an event of a generation into the black box, once a boot: what fails every
// five minutes must not write over what was before. boot is the id of this boot.
func Note(box blackbox.Box, boot string, g state.Generation, e spec.Event) error {
	e = of(g, boot, e)
	before, err := box.Events()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(before, func(b spec.Event) bool {
		return b.Boot == e.Boot && b.Event == e.Event && b.Overlay == e.Overlay && b.Code == e.Code && (b.Why == e.Why || e.Event == spec.EventRefused)
	}) {
		return nil
	}
	return box.Add(e)
}

// of fills in when and of what an event is.
func of(g state.Generation, boot string, e spec.Event) spec.Event {
	e.Time, e.Boot = time.Now().UTC().Truncate(time.Second), boot
	e.Generation, e.Epoch, e.Overlay, e.Layer = g.Generation, g.Epoch, g.Overlay, g.Layer
	return e
}
