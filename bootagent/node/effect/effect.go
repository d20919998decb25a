// SPDX-License-Identifier: Apache-2.0

// Package effect says what is in effect on a node: the overlay that its root runs, verified
// again, the items that this leads to, what is corrected of them and what is left alone, and
// how long a run of them may take. It decides nothing about generations.
package effect

import (
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/node/policy"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Effect puts generations into effect on an open node.
type Effect struct {
	Table
	Unbound error              // why there is no Tracker: no key is trusted
	Last    func() spec.Status // after the last run, the zero one when there was none
	Clock   Clock
	Made    time.Duration           // that a change has to be made, beside what its scripts take; 0 is five minutes, and one for each program
	Within  time.Duration           // that a change has to prove that the node is still reached
	Rival   func(spec.Drift) string // who made a drift so; "": nobody knows

	book *policy.Book // opened when it is asked for
}

// Clock is the time of a node.
type Clock interface {
	Up() time.Duration  // since the kernel started
	Now() time.Time     // by which windows are judged
	Synchronised() bool // it may be
}

// Begun reports whether this root was brought to what its overlay says at least once: a pause is
// for a machine that runs, not for one that comes up.
func (ef *Effect) Begun() bool { return ef.Last().RootID == ef.Scopes.Root }

// Runs returns the generation that this root runs, nil where it runs none.
func (ef *Effect) Runs(s *state.State) *state.Generation {
	boot := ef.Owner.Boot()
	return decide.Runs(s, boot.Generation, boot.Live.Applied, ef.Scopes.Kernel, ef.Root.RunsHere)
}

// PausedBy says why nothing may be changed now, "" where it may. A machine that comes up is
// brought to what its overlay says.
func (ef *Effect) PausedBy(found *track.Found) (string, error) {
	if found == nil || !ef.Begun() {
		return "", nil
	}
	p, err := ef.Pause(found)
	if err != nil || p == nil {
		return "", err
	}
	return say.Pause(p), nil
}

// Running returns the overlay that this root runs, verified again.
func (ef *Effect) Running() (*track.Found, error) {
	if ef.Tracker == nil {
		return nil, ef.Unbound
	}
	s, err := ef.Owner.State()
	if err != nil {
		return nil, err
	}
	g := ef.Runs(s)
	if g == nil {
		return nil, track.ErrNothing
	}
	found, err := ef.Tracker.Recall(g)
	if err != nil && g.IsAhead() && s.Current != nil && s.Current.Layer == g.Layer {
		// A newer signature of it may leave this layer out.
		ef.Log.Say("what runs is not signed for this layer any more: %v", err)
		g = s.Current
		found, err = ef.Tracker.Recall(g)
	}
	if w := ef.Owner.Boot().Live.Without; err == nil && w != nil && w.Overlay == g.Overlay {
		found.Overlay.Items = found.Overlay.Items.Keeping(w.Kept)
	}
	return found, err
}

// Found is running where nothing that runs is not an error.
func (ef *Effect) Found() (*track.Found, error) {
	found, err := ef.Running()
	return found, fault.But(err, track.ErrNothing)
}

// Pause returns the pause of this node, nil when there is none or it is over: an
// operator's here, or the fleet's. The newest overlay that was accepted says what the
// fleet wants, also one that waits for a reboot.
func (ef *Effect) Pause(found *track.Found) (*spec.Hold, error) {
	s, err := ef.Owner.State()
	if err != nil {
		return nil, err
	}
	if p := s.PauseAt(time.Now().Unix()); p != nil {
		return p, nil
	}
	if s.Staged != nil && s.Staged.Overlay != found.Generation.Overlay && decide.Older(found.Generation, *s.Staged) {
		if staged, err := ef.Tracker.Recall(s.Staged); err == nil { // one that was lost pauses nothing
			found = staged
		}
	}
	p := found.Overlay.Pause
	if p == nil || p.Until != 0 && p.Until <= time.Now().Unix() {
		return nil, nil
	}
	return &spec.Hold{Kind: spec.HoldPause, Author: fleet, Reason: p.Reason, Until: p.Until}, nil
}

// fleet is who pauses a node by its overlay.
const fleet = "the fleet"

// Guard decides about drift of what an overlay asks for. It is nil on a root that has
// just come up, and after all was put back: what differs was not set then.
func (ef *Effect) Guard(found *track.Found) items.Guard {
	if !ef.Begun() || ef.Corrections().Blank() {
		return nil
	}
	last := ef.Last()
	return &policy.Keeper{
		Rule: func(item, key string) spec.Enforcement {
			e := found.Overlay.Enforced(item, key)
			if ef.Late(found, found.Overlay.Maintenance.RealtimeOf(item, key)) != "" {
				e.Policy = spec.PolicyReport
			}
			return e
		},
		Late:  func(item, key string) string { return ef.Late(found, found.Overlay.Maintenance.RealtimeOf(item, key)) },
		Book:  ef.Corrections(),
		Fresh: func(item, key string) bool { return items.Deferred(last.Drift, item, key) },
		Rival: ef.Rival, Now: time.Now(), Up: ef.Clock.Up(),
		Began: func(quarantined []spec.Drift) {
			if !ef.Alone {
				return // only looking
			}
			for _, d := range quarantined {
				why := found.Overlay.Enforced(d.Item, d.Key).Budget.String()
				d = rules.Spelled(d)
				ef.Log.Record("quarantined", events.With("item", d.Item), events.With("key", d.Key), events.With("from", d.From),
					events.With("to", d.To), events.With("count", d.Count), events.With("rival", d.Rival), events.With("why", why))
			}
		},
	}
}

// Late says why what an operation of type realtime manages is not set now, "" where it
// is. Whatever a boot sets it sets at once.
func (ef *Effect) Late(found *track.Found, r *spec.Realtime) string {
	switch {
	case r == nil || len(r.Windows) == 0:
		return ""
	case !ef.Clock.Synchronised():
		return "its window is not known: the clock is not synchronised"
	}
	if ok, why := uptime.May(found.Overlay.Maintenance, r.Windows, ef.Clock.Now()); !ok {
		return why
	}
	return ""
}

// Corrections is the book of what was corrected lately. One that cannot be read is
// begun again, and said.
func (ef *Effect) Corrections() *policy.Book {
	if ef.book == nil {
		var err error
		if ef.book, err = policy.Open(ef.Folder.Path(), ef.Scopes.Kernel); err != nil {
			ef.Log.Say("corrections are counted from zero: %v", err)
		}
	}
	return ef.book
}

// Counted is the error of keeping the book, less that of a disk that takes no writes: what
// is set must not hang on a count.
func (ef *Effect) Counted(err error) error {
	if track.OfDisk(err) {
		ef.Log.Say("corrections are not kept: %v", err)
		return nil
	}
	return err
}

// Clear ends the quarantine of one setting, of a kind when key is empty, or of all, and
// returns what was quarantined.
func (ef *Effect) Clear(item, key string) ([]spec.Drift, error) {
	ended := ef.Corrections().Clear(item, key)
	if err := ef.Corrections().Save(); err != nil {
		return nil, err
	}
	for _, d := range ended {
		s := rules.Spelled(d)
		ef.Log.Record("cleared", events.With("item", s.Item), events.With("key", s.Key), events.With("count", s.Count),
			events.With("rival", s.Rival))
	}
	return ended, nil
}

// MoveCorrections notes that a generation is in effect; before is nil where nothing was.
func (ef *Effect) MoveCorrections(before, next *track.Found, result items.Result) error {
	if before == nil {
		return ef.Counted(ef.Corrections().Begin(next.Generation.Overlay))
	}
	return ef.Counted(ef.Corrections().Move(next.Generation.Overlay, ChangedKinds(before, next), result.Drift))
}

// ChangedKinds are the kinds of items that differ between two generations.
func ChangedKinds(from, to *track.Found) (kinds []string) {
	if from.Generation.Layer != to.Generation.Layer {
		kinds = append(kinds, accounts.Name)
	}
	for _, e := range spec.Changes(&from.Overlay, &to.Overlay) {
		if kind, ok := strings.CutPrefix(e.Part, "items."); ok {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Cause says which of these a run of the present overlay is for.
func (ef *Effect) Cause(inEffect bool) string {
	switch {
	case !ef.Begun():
		return events.WhyBoot
	case !inEffect:
		return events.WhyAgain
	}
	return events.WhyDrift
}
