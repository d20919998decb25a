// SPDX-License-Identifier: Apache-2.0

package published

import (
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// SplitHolds parts a row's holds into those that last at a time and those that are over.
func SplitHolds(holds []spec.Hold, now time.Time) (last, over []spec.Hold) {
	for _, h := range holds {
		if h.Over(now) {
			over = append(over, h)
		} else {
			last = append(last, h)
		}
	}
	return last, over
}

// HoldOf returns the hold of a kind, nil where there is none.
func HoldOf(holds []spec.Hold, kind string) *spec.Hold {
	if i := slices.IndexFunc(holds, func(h spec.Hold) bool { return h.Kind == kind }); i >= 0 {
		return &holds[i]
	}
	return nil
}

// WhyHeld says in a few words why a node is left out of something, as in `held: pin, waits
// for a firmware fix`; "" without a hold.
func WhyHeld(holds []spec.Hold) string {
	if len(holds) == 0 {
		return ""
	}
	return "held: " + holds[0].Kind + ", " + holds[0].Reason
}

// HoldText describes holds for people, as in `pin by eve since 2026-11-01 until
// 2026-11-08: waits for a firmware fix`.
func HoldText(holds []spec.Hold) string {
	var all []string
	for _, h := range holds {
		text := h.Kind
		if h.Author != "" {
			text += " by " + h.Author
		}
		text += " since " + when(h.Since)
		if h.Until != 0 {
			text += " until " + when(h.Until)
		}
		all = append(all, text+": "+h.Reason)
	}
	return strings.Join(all, "; ")
}

func when(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }
