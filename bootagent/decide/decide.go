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
// To add a transition, add a row, and an act where there is none that does it; of a new
// event also a row of events and titles in the tests. Its facts go into anyFacts, and its
// place is in the model, which plays a node whose calls all fail, or else in unplayed, with the
// reason. What real nodes met is replayed, see TestTraces.
package decide

import "slices"

// Act names an act of a node.
type Act string

// quiet are the acts that change nothing on the node but what it says of itself.
var quiet = []Act{Go, None, Watch, Keep, Stop, Report, LookNow, Decline, Probe, Compare, LookAgain, DeferGeneration,
	Renumber, EndDeadline, DeferReboot, NeverReboot, AskMedium, AskAgain, LeaveOut, Set, SetHarmless}

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
