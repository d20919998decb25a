// SPDX-License-Identifier: Apache-2.0

package say

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// setTracking says whether the node follows its fleet, and who has it keep what it has.
func (v *View) setTracking(st *spec.Status) {
	h := v.State.HoldAt(v.Now.Unix())
	switch {
	case h == nil:
		st.Tracking = spec.Following
		return
	case h.Kind != spec.HoldFreeze:
		st.Tracking = spec.Held
	}
	st.TrackingDetail, st.TrackingUntil = state.SayHold(h), state.Time(h.Until)
}

// Pause says who paused a node, why and until when.
func Pause(p *spec.Hold) string {
	text := p.Author + " paused this node"
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	if p.Until != 0 {
		text += fmt.Sprintf(" (until %s)", state.Time(p.Until).Format(time.RFC3339))
	}
	return text
}
