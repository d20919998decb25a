// SPDX-License-Identifier: Apache-2.0

// Package sysctl sets kernel parameters below /proc/sys, as sysctl.d(5) does,
// and puts the originals back.
//
// It reads and writes the files itself: no sysctl(8), no files in /etc/sysctl.d,
// so no other owner's file is applied by accident. A key is the path below
// /proc/sys. Values are compared field by field, because the kernel separates
// with tabs what people separate with blanks. Only package items imports it.
package sysctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "sysctl"

// Item sets the wanted keys.
type Item struct {
	want    []spec.Sysctl
	tree    tree
	journal item.Journal
}

// New returns the item for want, sorted by key; root is /proc/sys.
func New(want []spec.Sysctl, root string, j item.Journal) *Item {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b spec.Sysctl) int { return strings.Compare(a.Key, b.Key) })
	return &Item{want: want, tree: tree(root), journal: j}
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	wanted := map[string]bool{}
	for _, w := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.Key] = true
		if d, ok := i.compare(w); !ok {
			drift = append(drift, d)
		}
	}
	for _, e := range i.journal.Entries(Name) {
		p := decodePrior(e)
		if wanted[e.Key] || e.Applied == nil && wanted[p.Cause] {
			continue
		}
		now, _ := i.tree.read(e.Key) // shown only: what cannot be read is shown as nothing
		drift = append(drift, spec.Drift{Item: Name, Key: e.Key, From: now, To: p.Value, Action: spec.ActionRemove})
	}
	return drift, nil
}

// compare says whether a key is as wanted, and what is to be done when not.
func (i *Item) compare(w spec.Sysctl) (spec.Drift, bool) {
	d := spec.Drift{Item: Name, Key: w.Key, To: w.Value, Action: spec.ActionChange}
	refuse := func(action, reason string) (spec.Drift, bool) {
		d.Action, d.Reason = action, reason
		return d, false
	}
	if err := rules.Sysctl(w); err != nil {
		return refuse(spec.ActionRefuse, err.Error())
	}
	now, err := i.tree.read(w.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist) && w.Optional:
		return d, true
	case errors.Is(err, fs.ErrNotExist):
		return refuse(spec.ActionDefer, "there is no such key; the module or interface it belongs to may come later")
	case err != nil:
		return refuse(spec.ActionRefuse, fmt.Sprintf("it cannot be read, so it could not be put back: %v", reason(err)))
	}
	d.From = now
	if same(now, w.Value) {
		return d, true
	}
	if !i.tree.writable(w.Key) {
		return refuse(spec.ActionRefuse, "the kernel does not let it be changed")
	}
	return d, false
}

// Remember journals the originals of keys that are as wanted already: what changes
// them later is put back to that, and so is the key when it leaves the config.
func (i *Item) Remember(ctx context.Context) error {
	had := map[string]bool{}
	for _, e := range i.journal.Entries(Name) {
		had[e.Key] = true
	}
	var entries []item.Entry
	for _, w := range i.want {
		if now, err := i.tree.read(w.Key); err == nil && !had[w.Key] && rules.Sysctl(w) == nil && same(now, w.Value) {
			e := entry(w.Key, prior{Value: now})
			e.Applied = item.Raw(w.Value)
			entries = append(entries, e)
		}
	}
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	return i.journal.Record(entries...)
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	had := map[string]bool{}
	for _, e := range i.journal.Entries(Name) {
		had[e.Key] = true
	}
	todo := slices.DeleteFunc(slices.Clone(drift), func(d spec.Drift) bool { return d.Action != spec.ActionChange })
	todo, sides := i.withSides(todo)
	var entries []item.Entry
	for _, d := range todo {
		e := entry(d.Key, prior{Value: d.From})
		e.Applied = item.Raw(d.To)
		entries = append(entries, e)
	}
	for _, e := range sides {
		if !had[e.Key] {
			entries = append(entries, e)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.journal.Record(entries...); err != nil {
		return err
	}
	failed, err := i.settle(ctx, todo)
	if err != nil {
		return err
	}
	return i.giveUp(ctx, todo, failed, had)
}

// withSides adds to drift the wanted keys that it may change in passing, as they
// have to be set again, and returns entries for those that nobody wants. They are
// kept also when applying leaves them alone: putting the cause back may not.
func (i *Item) withSides(drift []spec.Drift) ([]spec.Drift, []item.Entry) {
	want, seen := map[string]string{}, map[string]bool{}
	for _, w := range i.want {
		want[w.Key] = w.Value
	}
	for _, d := range drift {
		seen[d.Key] = true
	}
	all := slices.Clone(drift)
	var sides []item.Entry
	for _, d := range drift {
		for _, key := range i.tree.coupled(d.Key) {
			value, err := i.tree.read(key)
			if err != nil || seen[key] {
				continue
			}
			seen[key] = true
			if to, wanted := want[key]; wanted {
				all = append(all, spec.Drift{Item: Name, Key: key, From: value, To: to, Action: spec.ActionChange})
				continue
			}
			sides = append(sides, entry(key, prior{Value: value, Cause: d.Key}))
		}
	}
	return all, sides
}

// passes is how often Apply and Restore go over their keys: one key may be
// refused, or be reset again, because of another that comes later.
const passes = 3

// settle writes drift until all of it reads back as wanted or a pass changes
// nothing; it returns what is still wrong.
func (i *Item) settle(ctx context.Context, drift []spec.Drift) (map[string]error, error) {
	failed := map[string]error{}
	for pass := range passes {
		for _, d := range drift {
			now := d.From // which was read just before
			if pass > 0 {
				now, _ = i.tree.read(d.Key) // it was read in the pass before
			}
			if same(now, d.To) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The read-back below judges; the error only explains it.
			failed[d.Key] = i.tree.write(d.Key, d.To)
		}
		wrong := 0
		for _, d := range drift {
			now, err := i.tree.read(d.Key)
			switch {
			case err == nil && same(now, d.To):
				delete(failed, d.Key)
				continue
			case err != nil:
				failed[d.Key] = err
			case failed[d.Key] == nil:
				failed[d.Key] = fmt.Errorf("the kernel took %q but holds %q", d.To, now)
			}
			wrong++
		}
		if wrong == 0 {
			break
		}
	}
	return failed, nil
}

// giveUp puts back what this run tried and could not set: the value it found, and
// what changed in passing. It forgets the entries that this run made for them.
func (i *Item) giveUp(ctx context.Context, tried []spec.Drift, failed map[string]error, had map[string]bool) error {
	if len(failed) == 0 {
		return nil
	}
	var errs []error
	var back []spec.Drift
	for _, d := range tried {
		if err, bad := failed[d.Key]; bad {
			errs = append(errs, fmt.Errorf("write sysctl %q: %w", d.Key, reason(err)))
			if had[d.Key] {
				now, _ := i.tree.read(d.Key) // it was read a moment ago
				back = append(back, spec.Drift{Item: Name, Key: d.Key, From: now, To: d.From})
			}
		}
	}
	if _, err := i.settle(ctx, back); err != nil {
		return err
	}
	var undo []item.Entry
	for _, e := range i.journal.Entries(Name) {
		_, own := failed[e.Key]
		_, side := failed[decodePrior(e).Cause]
		if !had[e.Key] && (own || side && e.Applied == nil) {
			undo = append(undo, e)
		}
	}
	return errors.Join(append(errs, i.Restore(ctx, undo))...)
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var drift []spec.Drift
	for _, e := range entries {
		now, err := i.tree.read(e.Key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the interface or module went, and the value with it
		}
		if was := decodePrior(e).Index; was != 0 && was != index(e.Key) {
			continue // it went, and another of its name came
		}
		drift = append(drift, spec.Drift{Item: Name, Key: e.Key, From: now, To: decodePrior(e).Value})
	}
	failed, err := i.settle(ctx, drift)
	if err != nil {
		return err
	}
	var done []item.Entry
	var errs []error
	for _, e := range entries {
		if err := failed[e.Key]; err != nil {
			errs = append(errs, fmt.Errorf("restore sysctl %q to %q: %w", e.Key, decodePrior(e).Value, reason(err)))
			continue
		}
		done = append(done, e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	errs = append(errs, i.journal.Forget(done...))
	return errors.Join(errs...)
}
