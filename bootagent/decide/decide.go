// SPDX-License-Identifier: Apache-2.0

// Package decide says what a node does next: a pure function of facts, read as a table.
//
// [Next] returns the first row of [Table] that is of the event and that holds. There is
// no other place in the agent where it is decided which generation runs, is tried and is
// taken back, and what keeps a machine from being started over into another one. When
// an operation runs, and the steps of its turn, is package operation's. Facts are values that
// package cycle, package operate or the loader has read before; acts are theirs to do, and
// what comes of an act is the next event. Nothing here reads, waits, or asks what time it is.
//
// The journal, the black box, why and the metrics call a decision by its row's name where its
// act changes anything, see [Act.Changes]: package cycle counts it, and the act writes its
// record, with a field by Transition of package events. The status says one that waits.
// docs/decisions.md shows the table as it is here, see TestThePageShowsTheTable.
//
// To add a transition, add a row, the fact that it asks for, and an act where there is none that
// does it. What real nodes met is replayed, see TestTraces.
package decide

import (
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/record/state"
)

// Act names an act of a node.
type Act string

// Changes reports whether an act changes what the node runs, tries, or goes back to.
func (a Act) Changes() bool { return !slices.Contains(quiet, a) }

// Step is a decision.
type Step struct {
	Name string // of the transition
	Act  Act
	Why  string
	For  string // of DeferReboot: one of the For constants of package spec
}

// Row is a transition.
type Row struct {
	Name  string
	On    Event
	When  string // for people
	Act   Act    // for the agent
	Does  string // for people
	is    func(f *Facts) bool
	why   func(f *Facts) string
	waits string // of DeferReboot, and of no other act: for what

	unplayed string // why the model of the tests has no place for it, "" where it plays it
	unmet    string // why no node of a test has met it, "" where one has
}

// Next returns what to do.
func Next(f *Facts) Step {
	for i := range Table {
		if r := &Table[i]; r.On == f.Event && (r.is == nil || r.is(f)) {
			s := Step{Name: r.Name, Act: r.Act, For: r.waits}
			if r.why != nil {
				s.Why = r.why(f)
			}
			return s
		}
	}
	panic("decide: no row for event " + string(f.Event)) // TestEveryEventHasAnAnswer
}

// Observer is shown each decision; nil is nobody.
type Observer func(*Facts, Step)

// Next is the function of that name, and shows what it returns.
func (o Observer) Next(f *Facts) Step {
	s := Next(f)
	if o != nil {
		o(f, s)
	}
	return s
}

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
	return a.Floor().Compare(b.Floor()) < 0
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
func (f *Facts) waits() bool { return f.Run.Phase == Confirming }

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
