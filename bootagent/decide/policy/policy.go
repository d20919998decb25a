// SPDX-License-Identifier: Apache-2.0

// Package policy decides what is done about drift: what somebody changed on a node
// since it was set.
//
// The overlay says what to do about which setting, [spec.Enforcement]: set it again, or
// leave it and report it. Who sets a setting again that another program keeps changing
// fights without end, so a correction costs of a budget, [spec.Budget]: five of one
// setting within ten minutes where nothing else is said. After them the setting is quarantined: it is looked at and reported, and not
// touched until an operator clears it, or the overlay wants another value of it, or has
// no such setting any more. The book of that is in the state directory, written before
// the correction is made, so that neither a restart of the agent nor its death resets it.
//
// The package knows no kinds and sets nothing; a [Keeper] is the Guard of package items.
// Only bootagent/node/effect imports it.
package policy

import (
	"slices"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Keeper judges drift at one moment.
type Keeper struct {
	Rule  func(item, key string) spec.Enforcement // with a budget
	Late  func(item, key string) string           // why nothing is set now, "" where it is; may be nil
	Book  *Book
	Fresh func(item, key string) bool    // it was never set, for it could not be
	Rival func(d spec.Drift) string      // who made it so; "" or nil: nobody knows
	Now   time.Time                      // for people
	Up    time.Duration                  // since the kernel's start, for the budget
	Began func(quarantined []spec.Drift) // is told of each new quarantine; may be nil
}

// Judge returns a drift as it is to be treated: as it is where it is to be corrected.
// What was never set waits where it is late, whatever the policy is.
func (k *Keeper) Judge(d spec.Drift, fresh bool) spec.Drift {
	if d.Action != spec.ActionAdd && d.Action != spec.ActionChange {
		return d
	}
	fresh = fresh || k.Fresh != nil && k.Fresh(d.Item, d.Key)
	if fresh && k.Late != nil {
		if why := k.Late(d.Item, d.Key); why != "" {
			d.Action, d.Reason = spec.ActionDefer, why
			return d
		}
	}
	r := k.Book.find(d.Item, d.Key)
	if r != nil && r.Want != d.To {
		k.Book.forget(d.Item, d.Key)
		r = nil
	}
	if fresh {
		return d
	}
	if d.Rival == "" && k.Rival != nil {
		d.Rival = k.Rival(d)
	}
	if d.Rival == "" {
		d.Rival = spec.RivalUnknown
	}
	rule := k.Rule(d.Item, d.Key)
	switch {
	case rule.Policy == spec.PolicyReport:
		d.Action = spec.ActionReport
	case r == nil:
	case !r.Quarantined.IsZero():
		d = r.onto(d)
	case int64(len(k.recent(r))) >= k.budget(d.Item, d.Key).Corrections:
		r.Quarantined, r.Count, k.Book.dirty = k.Now.UTC().Truncate(time.Second), len(k.recent(r)), true
		d = r.onto(d)
		if k.Began != nil {
			k.Began([]spec.Drift{d})
		}
	}
	return d
}

// onto tells of a drift that it is quarantined.
func (r *record) onto(d spec.Drift) spec.Drift {
	d.Action, d.Since, d.Count = spec.ActionQuarantine, r.Quarantined, r.Count
	if d.Rival == spec.RivalUnknown && r.Rival != "" {
		d.Rival = r.Rival
	}
	return d
}

// Held lists the quarantined settings of a kind that are not in its drift: they are as
// wanted, and would not be corrected.
func (k *Keeper) Held(item string, drift []spec.Drift) (held []spec.Drift) {
	for _, r := range k.Book.pages.Keys {
		if r.Item == item && !r.Quarantined.IsZero() && k.Rule(r.Item, r.Key).Policy == spec.PolicyEnforce &&
			!slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Key == r.Key }) {
			held = append(held, r.drift())
		}
	}
	return held
}

// Correct takes note of corrections that are about to be made. What was never set is
// not one.
func (k *Keeper) Correct(due []spec.Drift) error {
	for _, d := range due {
		if d.Action != spec.ActionAdd && d.Action != spec.ActionChange || k.Fresh != nil && k.Fresh(d.Item, d.Key) {
			continue
		}
		r := k.Book.find(d.Item, d.Key)
		if r == nil {
			r = &record{Item: d.Item, Key: d.Key, Want: d.To}
			k.Book.pages.Keys = append(k.Book.pages.Keys, r)
		}
		r.Corrections = append(k.recent(r), k.Up)
		if d.Rival != spec.RivalUnknown {
			r.Rival = d.Rival
		}
		k.Book.dirty = true
	}
	k.prune()
	return k.Book.Save()
}

// Undone takes back that a correction was made: it failed, and nobody else is to blame
// for that.
func (k *Keeper) Undone(d spec.Drift) {
	if r := k.Book.find(d.Item, d.Key); r != nil && len(r.Corrections) > 0 && r.Corrections[len(r.Corrections)-1] == k.Up {
		r.Corrections = r.Corrections[:len(r.Corrections)-1]
		k.Book.dirty = true
	}
}

// budget is that of a setting; one that the rules refuse, as without an end, is the usual
// one, whichever key signed it.
func (k *Keeper) budget(item, key string) spec.Budget {
	if b := k.Rule(item, key).Budget; b != nil && rules.Budget(*b) == nil {
		return *b
	}
	return spec.UsualBudget()
}

// recent returns the corrections that still count.
func (k *Keeper) recent(r *record) []time.Duration {
	per := time.Duration(k.budget(r.Item, r.Key).Per) * time.Second
	return slices.DeleteFunc(slices.Clone(r.Corrections), func(at time.Duration) bool { return k.Up-at >= per })
}

// prune forgets what does not count any more.
func (k *Keeper) prune() {
	k.Book.pages.Keys = slices.DeleteFunc(k.Book.pages.Keys, func(r *record) bool {
		return r.Quarantined.IsZero() && len(k.recent(r)) == 0
	})
}
