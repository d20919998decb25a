// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// entries are those of the journal by interface and kernel feature.
func (i *Features) entries() map[string]map[string]item.Entry {
	found := map[string]map[string]item.Entry{}
	for _, e := range i.journal.Entries(FeaturesName) {
		iface, feature := splitFeature(e.Key)
		if found[iface] == nil {
			found[iface] = map[string]item.Entry{}
		}
		found[iface][feature] = e
	}
	return found
}

// change holds the changes to one interface.
type change struct {
	iface    string
	before   featureNIC
	features []spec.Feature
	ask      map[string]bool // kernel features
	had      map[string]item.Entry
	undone   map[string]bool
}

// Apply implements item.Item. All features of an interface that can change go to
// the journal before; those that did not are forgotten after, so that a crash
// between loses no side effect. The interfaces share one fsync each way.
func (i *Features) Apply(ctx context.Context, drift []spec.Drift) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.Restore(ctx, i.ofOthers()); err != nil {
		return err
	}
	changes, errs := i.changes(drift)
	var entries, drop []item.Entry
	for _, c := range changes {
		entries = append(entries, c.entries()...)
	}
	if err := i.journal.Record(entries...); err != nil {
		return err
	}
	recorded := i.entries()
	for _, c := range changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		after, err := i.make(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, err)
		drop = append(drop, c.unchanged(recorded[c.iface], after)...)
	}
	return errors.Join(append(errs, item.Forget(ctx, i.journal, drop...))...)
}

// changes sorts drift by interface and looks at each.
func (i *Features) changes(drift []spec.Drift) (list []*change, errs []error) {
	byIface := map[string][]spec.Feature{}
	for _, d := range drift {
		if d.Action == spec.ActionChange {
			iface, feature := splitFeature(d.Key)
			byIface[iface] = append(byIface[iface], spec.Feature{Interface: iface, Feature: feature, On: d.To == "on"})
		}
	}
	recorded := i.entries()
	for _, iface := range sorted(byIface) {
		c := &change{iface: iface, before: i.look(iface), features: byIface[iface], ask: map[string]bool{}, undone: map[string]bool{}}
		if c.before.err != nil {
			errs = append(errs, fmt.Errorf("read features of %s: %w", iface, c.before.err))
			continue
		}
		for _, f := range c.features {
			for _, m := range members(f.Feature, c.before.features) {
				if c.before.features[m].Changeable {
					c.ask[m] = f.On
				}
			}
		}
		c.had = recorded[iface]
		list = append(list, c)
	}
	return list, errs
}

// make switches the features of one interface in one call, and takes back those
// that the kernel did not switch.
func (i *Features) make(ctx context.Context, c *change) (after featureNIC, err error) {
	failure := i.device.Change(c.iface, c.ask)
	after = i.look(c.iface)
	var errs []error
	for _, f := range c.features {
		d := after.compare(f)
		if d.Action == "" {
			continue
		}
		why := cmp.Or(failure, errors.New(cmp.Or(d.Reason, "the kernel did not do it")))
		errs = append(errs, fmt.Errorf("set feature %q of %s %s: %w", f.Feature, c.iface, onOff(f.On), why))
		for _, m := range members(f.Feature, c.before.features) {
			if c.before.features[m].Changeable {
				c.undone[m] = c.before.features[m].Requested
			}
		}
	}
	if len(c.undone) > 0 {
		if err := ctx.Err(); err != nil {
			return after, err
		}
		errs = append(errs, i.device.Change(c.iface, c.undone))
		after = i.look(c.iface)
	}
	return after, errors.Join(errs...)
}

// ofOthers are the entries of interfaces whose name another one has by now.
func (i *Features) ofOthers() []item.Entry {
	return slices.DeleteFunc(i.journal.Entries(FeaturesName), func(e item.Entry) bool {
		iface, _ := splitFeature(e.Key)
		now, err := i.device.Index(iface)
		return err != nil || now == item.Was[featurePrior](e).Index
	})
}

// entries returns the entries to journal before the change.
func (c *change) entries() []item.Entry {
	var entries []item.Entry
	for _, feature := range sorted(c.before.features) {
		s := c.before.features[feature]
		on, own := c.ask[feature]
		if _, known := c.had[feature]; !s.Changeable || known && !own {
			continue
		}
		e := item.Entry{Item: FeaturesName, Key: featureKey(c.iface, feature),
			Prior: item.Raw(featurePrior{c.before.index, s.Requested, s.Active}), Scope: item.Kernel}
		if own {
			e.Applied = item.Raw(on)
		}
		entries = append(entries, e)
	}
	return entries
}

// unchanged are the entries of this run that were not a side effect, and of what was
// undone.
func (c *change) unchanged(recorded map[string]item.Entry, after featureNIC) []item.Entry {
	var drop []item.Entry
	for feature, e := range recorded {
		_, known := c.had[feature]
		_, undone := c.undone[feature]
		p, s := item.Was[featurePrior](e), after.features[feature]
		if !known && (undone || e.Applied == nil && s.Requested == p.Requested && s.Active == p.Active) {
			drop = append(drop, e)
		}
	}
	return drop
}

// Restore implements item.Item.
func (i *Features) Restore(ctx context.Context, entries []item.Entry) error {
	byIface := map[string][]item.Entry{}
	for _, e := range entries {
		iface, _ := splitFeature(e.Key)
		iface = cmp.Or(i.device.Called(item.Was[featurePrior](e).Index), iface) // it may have been renamed
		byIface[iface] = append(byIface[iface], e)
	}
	var done, moved []item.Entry
	var errs []error
	for _, iface := range sorted(byIface) {
		if err := ctx.Err(); err != nil {
			return err
		}
		these, carried, err := i.restoreTo(iface, byIface[iface])
		done, moved, errs = append(done, these...), append(moved, carried...), append(errs, err)
	}
	return errors.Join(append(errs, item.Replace(ctx, i.journal, done, moved))...)
}

// restoreTo puts back what entries say of an interface. It returns those that are done with, and
// what of them is kept by the name that the interface has now.
func (i *Features) restoreTo(iface string, entries []item.Entry) (done, carried []item.Entry, err error) {
	now := i.look(iface)
	if errors.Is(now.err, ErrMissing) {
		return entries, nil, nil // its settings went with it
	}
	if now.err != nil {
		return nil, nil, fmt.Errorf("read features of %s: %w", iface, now.err)
	}
	ask := map[string]bool{}
	for _, e := range entries {
		was, feature := splitFeature(e.Key)
		p := item.Was[featurePrior](e)
		switch {
		case p.Index != now.index:
		case was != iface && i.keeps(iface, feature, now, e.Applied != nil):
			e.Key = featureKey(iface, feature)
			carried = append(carried, e)
		case now.features[feature].Changeable && now.features[feature].Requested != p.Requested:
			ask[feature] = p.Requested
		}
	}
	if len(ask) > 0 {
		if err := i.device.Change(iface, ask); err != nil {
			return nil, nil, fmt.Errorf("restore features of %s: %w", iface, err)
		}
		now = i.look(iface)
	}
	var errs []error
	for _, e := range entries {
		_, feature := splitFeature(e.Key)
		if want, asked := ask[feature]; asked && now.features[feature].Requested != want {
			errs = append(errs, fmt.Errorf("restore feature %q of %s to %s: the kernel did not do it", feature, iface, onOff(want)))
			continue
		}
		done = append(done, e)
	}
	return done, carried, errors.Join(errs...)
}

// keeps reports whether a feature is wanted of an interface, or is the side effect of one.
func (i *Features) keeps(iface, feature string, n featureNIC, own bool) bool {
	return slices.ContainsFunc(i.want, func(w spec.Feature) bool {
		return w.Interface == iface && (!own || slices.Contains(members(w.Feature, n.features), feature))
	})
}

// Adopt returns entries with what is wanted as the original of what is, one for each
// feature of the kernel's. An interface that is not there has nothing to put back.
func (i *Features) Adopt() (entries []item.Entry, err error) {
	for _, w := range i.want {
		n := i.look(w.Interface)
		if errors.Is(n.err, ErrMissing) {
			continue
		}
		if n.err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", w.Interface, n.err))
			continue
		}
		for _, m := range members(w.Feature, n.features) {
			if s := n.features[m]; s.Changeable {
				e := item.Entry{Item: FeaturesName, Key: featureKey(w.Interface, m), Prior: item.Raw(featurePrior{n.index, w.On, w.On}),
					Applied: item.Raw(s.Active), Scope: item.Kernel}
				entries = append(entries, e)
			}
		}
	}
	return entries, err
}

// Kept adds the features, as they are now, that were wanted and have an original.
func (i *Features) Kept(items *spec.Items) {
	for _, e := range i.journal.Entries(FeaturesName) {
		iface, feature := splitFeature(e.Key)
		n := i.look(iface)
		if s, ok := n.features[feature]; ok && n.index == item.Was[featurePrior](e).Index && e.Applied != nil {
			items.Ethtool = append(items.Ethtool, spec.Feature{Interface: iface, Feature: feature, On: s.Active})
		}
	}
}
