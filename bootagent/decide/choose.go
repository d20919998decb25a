// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"

	"github.com/caisson-os/caisson/bootagent/decide/run"
	"github.com/caisson-os/caisson/bootagent/record/state"
)

// Runs returns the generation that a root runs, nil where that is nothing: the one that the
// loader chose, until a change of the running root has moved the node on.
//
// here reports whether this root can have a layer as it is; applied is what was put in
// effect and is judged.
func Runs(s *state.State, root state.Generation, applied *state.Generation, boot string, here func(layer string) bool) *state.Generation {
	t := s.Trial
	tried := t.Pending() && t.Boot == boot
	if tried && t.Ends != 0 {
		return &t.Generation
	}
	g := root
	if applied != nil {
		g = *applied
	}
	if best := s.Best(); best != nil && here(best.Layer) && (!Older(*best, g) || t.Of(g) && !t.Begins()) {
		g = *best
	}
	if g.Overlay == "" {
		return nil
	}
	return &g
}

// Older reports whether a generation was published before another.
func Older(a, b state.Generation) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Generation < b.Generation
}

// Refused says why a generation is not begun on this node by itself, "" where it may be.
// begun is how many boots of it were begun before this one, now is in seconds since 1970.
func Refused(g state.Generation, begun int, now int64) string {
	switch {
	case g.IsAhead():
		return g.FailedAhead
	case g.Failed != "" && (g.Again == 0 || now < g.Again):
		return g.Failed
	case begun >= state.MaxAttempts:
		return fmt.Sprintf("%d boots of it were begun, and none came up", begun)
	}
	return ""
}

func (f *Facts) refused() string { return Refused(f.Offer.Generation, f.Offer.Attempts, f.Now) }

// waits reports whether a change of this boot is in effect and waits for its operator.
func (f *Facts) waits() bool { return f.Run.Phase == run.Confirming }

// partial reports whether a generation runs without what could cut the node off.
func (f *Facts) partial(g state.Generation) bool {
	return f.Without != nil && f.Without.Overlay == g.Overlay
}

// Way is one way in which a loader goes back.
type Way struct {
	At    int  // which of the generations that ran well
	Fetch bool // what is missing of it may be fetched
}

// WaysBack lists how a loader goes back to one of some generations that ran well, the newest
// first: each from what is whole on the disk, and only where none is whole there, each with
// what the registry completes, where there is one.
func WaysBack(generations int, registry bool) []Way {
	var ways []Way
	for _, fetch := range []bool{false, true} {
		for at := range generations {
			if !fetch || registry {
				ways = append(ways, Way{at, fetch})
			}
		}
	}
	return ways
}
