// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// step is one of a node's boot, as the page draws it.
type step struct {
	Name, Result     string
	OK               bool
	Begin, End, Took string
	Bytes            string
	From, Width      float64 // of the chart, in thousandths
}

// leastWidth lets a short step be seen.
const leastWidth = 2

// chart returns the steps of a node's boot beside each other; nil where it tells none.
func chart(r *spec.Report) (list []step) {
	if r == nil {
		return nil
	}
	whole := 0.0
	for _, s := range r.Boot {
		whole = max(whole, s.Start+s.Took)
	}
	for _, s := range r.Boot {
		one := step{Name: s.Name, Result: s.Result, OK: s.Result == spec.StepOK, Begin: lasting(s.Start), End: lasting(s.Start + s.Took), Took: lasting(s.Took)}
		if s.Bytes != nil {
			one.Bytes = s.Bytes.String()
		}
		if whole > 0 {
			one.Width = max(leastWidth, 1000*s.Took/whole)
			one.From = min(1000*s.Start/whole, 1000-one.Width)
		}
		list = append(list, one)
	}
	return list
}

// lasting says how long something took, to three digits or so.
func lasting(milliseconds float64) string {
	switch d := time.Duration(milliseconds * float64(time.Millisecond)); {
	case milliseconds < 1000:
		return fmt.Sprintf("%.0f ms", milliseconds)
	case milliseconds < 100_000:
		return fmt.Sprintf("%.1f s", milliseconds/1000)
	default:
		return d.Round(time.Second).String()
	}
}
