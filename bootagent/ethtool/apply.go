// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/bootagent/item"
	"github.com/caisson-os/caisson/spec"
)

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// entries are those of one interface, by kernel feature.
func (i *Item) entries(iface string) map[string]item.Entry {
	found := map[string]item.Entry{}
	for _, e := range i.journal.Entries(Name) {
		if name, feature := split(e.Key); name == iface {
			found[feature] = e
		}
	}
	return found
}

// applyTo switches features of one interface in one call. All features that can
// change go to the journal before; those that did not are forgotten after, so
// that a crash between loses no side effect.
func (i *Item) applyTo(ctx context.Context, iface string, features []spec.Feature) error {
	before := i.look(iface)
	if before.err != nil {
		return fmt.Errorf("read features of %s: %w", iface, before.err)
	}
	ask := map[string]bool{}
	for _, f := range features {
		for _, m := range members(f.Feature, before.features) {
			if before.features[m].Changeable {
				ask[m] = f.On
			}
		}
	}
	had, err := i.live(iface, before.index)
	if err != nil {
		return err
	}
	if err := i.record(iface, before, ask, had); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	failure := i.device.Change(iface, ask)
	after := i.look(iface)
	var errs []error
	undo := map[string]bool{}
	for _, f := range features {
		if d := after.compare(f); d.Action != "" {
			errs = append(errs, fmt.Errorf("set feature %q of %s %s: %w", f.Feature, iface, onOff(f.On), cmp.Or(failure, errors.New(cmp.Or(d.Reason, "the kernel did not do it")))))
			for _, m := range members(f.Feature, before.features) {
				if before.features[m].Changeable {
					undo[m] = before.features[m].Requested
				}
			}
		}
	}
	if len(undo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, i.device.Change(iface, undo))
		after = i.look(iface)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(append(errs, i.forgetUnchanged(iface, after, had, undo))...)
}

// live drops the entries of an interface of the same name that is gone, and
// returns the others.
func (i *Item) live(iface string, index int) (map[string]item.Entry, error) {
	entries := i.entries(iface)
	var stale []item.Entry
	for feature, e := range entries {
		if decode(e).Index != index {
			stale = append(stale, e)
			delete(entries, feature)
		}
	}
	return entries, i.journal.Forget(stale...)
}

func (i *Item) record(iface string, n nic, ask map[string]bool, had map[string]item.Entry) error {
	var entries []item.Entry
	for _, feature := range sorted(n.features) {
		s := n.features[feature]
		on, own := ask[feature]
		if _, known := had[feature]; !s.Changeable || known && !own {
			continue
		}
		e := item.Entry{Item: Name, Key: key(iface, feature), Prior: item.Raw(prior{n.index, s.Requested, s.Active}), Scope: item.Kernel}
		if own {
			e.Applied = item.Raw(on)
		}
		entries = append(entries, e)
	}
	return i.journal.Record(entries...)
}

// forgetUnchanged drops side entries that were no side effect, and what was undone.
func (i *Item) forgetUnchanged(iface string, after nic, had map[string]item.Entry, undone map[string]bool) error {
	var drop []item.Entry
	for feature, e := range i.entries(iface) {
		_, known := had[feature]
		_, undo := undone[feature]
		p, s := decode(e), after.features[feature]
		if !known && (undo || e.Applied == nil && s.Requested == p.Requested && s.Active == p.Active) {
			drop = append(drop, e)
		}
	}
	return i.journal.Forget(drop...)
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	byIface := map[string][]item.Entry{}
	for _, e := range entries {
		iface, _ := split(e.Key)
		byIface[iface] = append(byIface[iface], e)
	}
	var errs []error
	for _, iface := range sorted(byIface) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.restoreTo(ctx, iface, byIface[iface]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (i *Item) restoreTo(ctx context.Context, iface string, entries []item.Entry) error {
	now := i.look(iface)
	if errors.Is(now.err, ErrMissing) {
		return i.journal.Forget(entries...) // its settings went with it
	}
	if now.err != nil {
		return fmt.Errorf("read features of %s: %w", iface, now.err)
	}
	ask := map[string]bool{}
	for _, e := range entries {
		_, feature := split(e.Key)
		if p := decode(e); p.Index == now.index && now.features[feature].Changeable && now.features[feature].Requested != p.Requested {
			ask[feature] = p.Requested
		}
	}
	if len(ask) > 0 {
		if err := i.device.Change(iface, ask); err != nil {
			return fmt.Errorf("restore features of %s: %w", iface, err)
		}
		now = i.look(iface)
	}
	var errs []error
	var done []item.Entry
	for _, e := range entries {
		_, feature := split(e.Key)
		if want, asked := ask[feature]; asked && now.features[feature].Requested != want {
			errs = append(errs, fmt.Errorf("restore feature %q of %s to %s: the kernel did not do it", feature, iface, onOff(want)))
			continue
		}
		done = append(done, e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(append(errs, i.journal.Forget(done...))...)
}
