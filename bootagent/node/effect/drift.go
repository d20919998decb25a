// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide/policy"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/window"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

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
	if ok, why := window.May(found.Overlay.Maintenance, r.Windows, ef.Clock.Now()); !ok {
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
