// SPDX-License-Identifier: Apache-2.0

// Package tunable keeps the values of files in which the kernel shows its
// settings, one value a file: those below /proc/sys and those below /sys are
// looked at, written, read back and put back by the same rules.
//
// A kind of item says which files there are, which of them the kernel changes
// along with another, and when two values mean the same. The kinds of sysctls and of
// attributes are here, see [NewSysctl] and [NewSysfs]; those that set such values beside
// something else (bootagent/items/modules, bootagent/items/nics) import it.
package tunable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Setting holds the wanted content of one file.
type Setting struct {
	Key, Value string
	Optional   bool  // a missing file is not an error
	Invalid    error // why it is refused whatever the kernel says; nil when it is not
}

// Files are the files of a kind. An error of a missing one is fs.ErrNotExist.
type Files interface {
	Read(key string) (string, error)
	Write(key, value string) error
	// Writable looks at the mode alone, so that it is as true for root.
	Writable(key string) bool
	// Owner identifies what a file belongs to: a device or interface that was
	// removed and made again has another. 0 is the kernel itself.
	Owner(key string) uint64
}

// mover is Files whose owners may get another name: Moved returns the key that a file has by
// now, "" where its owner is gone.
type mover interface {
	Moved(key string, owner uint64) string
}

// Kind describes the files of a kind of item.
type Kind struct {
	Name    string
	Files   Files
	Coupled func(key string) []string   // present files that writing key may change
	Same    func(key, a, b string) bool // whether two values of key mean the same

	// Fixed says when a file that is read only gets another value, and defers it;
	// "" refuses it.
	Fixed string

	// Stays reports whether the kernel keeps a key at what it has until it starts anew: another
	// value is deferred, and nothing is put back; nil where it keeps none.
	Stays func(key, now string) bool

	// Done ends a pass over the keys: it lets go of what Files keeps open; may be nil.
	Done func()

	// Refuse says why the kernel would not take a value; nil asks the kernel by
	// writing it.
	Refuse func(key, value string) error

	// Keep adds to items that a key has a value; nil where nothing is kept, see Kept.
	Keep func(items *spec.Items, key, value string)
}

// Item keeps the wanted values.
type Item struct {
	kind    Kind
	want    []Setting
	journal item.Journal
	differs map[string]bool // keys that the last check found to be otherwise
}

// New returns the item for want.
func New(kind Kind, want []Setting, j item.Journal) *Item {
	if kind.Done == nil {
		kind.Done = func() {}
	}
	if kind.Stays == nil {
		kind.Stays = func(string, string) bool { return false }
	}
	slices.SortStableFunc(want, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return &Item{kind: kind, want: want, journal: j}
}

// Name implements item.Item.
func (i *Item) Name() string { return i.kind.Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	defer i.kind.Done()
	var drift []spec.Drift
	wanted := map[string]bool{}
	i.differs = map[string]bool{}
	for _, w := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.Key] = true
		if d, ok := i.compare(w); !ok {
			drift = append(drift, d)
			i.differs[w.Key] = true
		}
	}
	for _, e := range i.journal.Entries(i.kind.Name) {
		p := item.Was[prior](e)
		moved := i.replaced(e.Key, p) && i.present(e.Key, p) != ""
		if !moved && (wanted[e.Key] || e.Applied == nil && wanted[p.Cause]) {
			continue
		}
		to, now := p.Value, ""
		if key := i.present(e.Key, p); key != "" {
			now, _ = i.kind.Files.Read(key) // shown only: what cannot be read is shown as nothing
		} else {
			now, _ = i.kind.Files.Read(e.Key) // as above
			to = now                          // nothing is put back
		}
		drift = append(drift, spec.Drift{Item: i.kind.Name, Key: e.Key, From: now, To: to, Action: spec.ActionRemove})
	}
	return drift, nil
}

// compare says whether a key is as wanted, and what is to be done when not.
func (i *Item) compare(w Setting) (spec.Drift, bool) {
	d := spec.Drift{Item: i.kind.Name, Key: w.Key, To: w.Value, Action: spec.ActionChange}
	refuse := func(action, reason string) (spec.Drift, bool) {
		d.Action, d.Reason = action, reason
		return d, false
	}
	if w.Invalid != nil {
		return refuse(spec.ActionRefuse, w.Invalid.Error())
	}
	now, err := i.kind.Files.Read(w.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist) && w.Optional:
		return d, true
	case errors.Is(err, fs.ErrNotExist):
		return refuse(spec.ActionDefer, "there is no such key; the module or device it belongs to may come later")
	case err != nil:
		return refuse(spec.ActionRefuse, fmt.Sprintf("it cannot be read, so it could not be put back: %v", reason(err)))
	}
	d.From = now
	if i.kind.Same(w.Key, now, w.Value) {
		return d, true
	}
	if i.kind.Stays(w.Key, now) {
		return refuse(spec.ActionDefer, "the kernel keeps what it has until it starts anew")
	}
	if i.kind.Refuse != nil {
		if err := i.kind.Refuse(w.Key, w.Value); err != nil {
			return refuse(spec.ActionRefuse, err.Error())
		}
	}
	if fixed := !i.kind.Files.Writable(w.Key); fixed && i.kind.Fixed != "" {
		return refuse(spec.ActionDefer, i.kind.Fixed)
	} else if fixed {
		return refuse(spec.ActionRefuse, "the kernel does not let it be changed")
	}
	return d, false
}

// Remember journals the originals of keys that are as wanted already: what changes
// them later is put back to that, and so is the key when it leaves the config.
func (i *Item) Remember(ctx context.Context) error {
	defer i.kind.Done()
	had := item.Keys(i.journal.Entries(i.kind.Name))
	var entries []item.Entry
	for _, w := range i.want {
		if had[w.Key] || i.differs[w.Key] || w.Invalid != nil {
			continue
		}
		if now, err := i.kind.Files.Read(w.Key); err == nil && i.kind.Same(w.Key, now, w.Value) {
			e := i.entry(w.Key, prior{Value: now})
			e.Applied = item.Raw(w.Value)
			entries = append(entries, e)
		}
	}
	return item.Record(ctx, i.journal, entries...)
}

// Renew forgets the originals of keys that are not as they were last set: on a root that has
// just come up on the same kernel, its own system has set them since.
func (i *Item) Renew() error {
	defer i.kind.Done()
	var others []item.Entry
	for _, e := range i.journal.Entries(i.kind.Name) {
		var applied string
		if json.Unmarshal(e.Applied, &applied) != nil {
			continue // changed in passing
		}
		if now, err := i.kind.Files.Read(e.Key); err == nil && !i.kind.Same(e.Key, now, applied) {
			others = append(others, e)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return i.journal.Forget(others...)
}

// Apply implements item.Item. It leaves the pass over the keys to the check that follows each
// apply, which then opens no file a second time.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	todo := slices.DeleteFunc(slices.Clone(drift), func(d spec.Drift) bool { return d.Action != spec.ActionChange })
	if len(todo) == 0 {
		return nil
	}
	others := slices.DeleteFunc(i.journal.Entries(i.kind.Name), func(e item.Entry) bool { return !i.replaced(e.Key, item.Was[prior](e)) })
	if len(others) > 0 { // else the original of what has a key by now would be that of what had it
		if err := i.Restore(ctx, others); err != nil {
			return err
		}
	}
	had := item.Keys(i.journal.Entries(i.kind.Name))
	todo, sides := i.withSides(todo)
	entries := plain.Each(todo, func(d spec.Drift) item.Entry {
		e := i.entry(d.Key, prior{Value: d.From})
		e.Applied = item.Raw(d.To)
		return e
	})
	sides = slices.DeleteFunc(sides, func(e item.Entry) bool { return had[e.Key] })
	if err := item.Record(ctx, i.journal, append(entries, sides...)...); err != nil {
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
		for _, key := range i.kind.Coupled(d.Key) {
			value, err := i.kind.Files.Read(key)
			if err != nil || seen[key] {
				continue
			}
			seen[key] = true
			if to, wanted := want[key]; wanted {
				all = append(all, spec.Drift{Item: i.kind.Name, Key: key, From: value, To: to, Action: spec.ActionChange})
				continue
			}
			sides = append(sides, i.entry(key, prior{Value: value, Cause: d.Key}))
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
				now, _ = i.kind.Files.Read(d.Key) // it was read in the pass before
			}
			if i.kind.Same(d.Key, now, d.To) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The read-back below judges; the error only explains it.
			failed[d.Key] = i.kind.Files.Write(d.Key, d.To)
		}
		wrong := 0
		for _, d := range drift {
			now, err := i.kind.Files.Read(d.Key)
			switch {
			case err == nil && i.kind.Same(d.Key, now, d.To):
				delete(failed, d.Key)
				continue
			case err != nil:
				failed[d.Key] = err
			case failed[d.Key] == nil:
				failed[d.Key] = fmt.Errorf("the kernel took %q and holds %q: it rounds or bounds the value", d.To, now)
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
			errs = append(errs, fmt.Errorf("write %s %q to %q: %w", i.kind.Name, rules.Spelled(d).Key, d.To, reason(err)))
			if had[d.Key] {
				now, _ := i.kind.Files.Read(d.Key) // it was read a moment ago
				back = append(back, spec.Drift{Item: i.kind.Name, Key: d.Key, From: now, To: d.From})
			}
		}
	}
	if _, err := i.settle(ctx, back); err != nil {
		return err
	}
	var undo []item.Entry
	for _, e := range i.journal.Entries(i.kind.Name) {
		_, own := failed[e.Key]
		_, side := failed[item.Was[prior](e).Cause]
		if !had[e.Key] && (own || side && e.Applied == nil) {
			undo = append(undo, e)
		}
	}
	return errors.Join(append(errs, i.Restore(ctx, undo))...)
}

// GiveBack sets what was found before an apply.
func (i *Item) GiveBack(ctx context.Context, found []spec.Drift) error {
	defer i.kind.Done()
	var back []spec.Drift
	for _, d := range found {
		now, err := i.kind.Files.Read(d.Key)
		if err != nil {
			return err
		}
		back = append(back, spec.Drift{Item: d.Item, Key: d.Key, From: now, To: d.From})
	}
	failed, err := i.settle(ctx, back)
	return errors.Join(append(slices.Collect(maps.Values(failed)), err)...)
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	defer i.kind.Done()
	var drift []spec.Drift
	var carried []item.Entry
	for _, e := range entries {
		p := item.Was[prior](e)
		key := i.present(e.Key, p)
		switch {
		case key == "":
			continue // the device or module went, and the value with it
		case key != e.Key && slices.ContainsFunc(i.want, func(w Setting) bool { return w.Key == key }):
			e.Key = key
			carried = append(carried, e)
			continue // it is wanted by its new name, and so its original is kept
		}
		now, _ := i.kind.Files.Read(key) // what cannot be read is written all the same
		drift = append(drift, spec.Drift{Item: i.kind.Name, Key: key, From: now, To: p.Value})
	}
	failed, err := i.settle(ctx, drift)
	if err != nil {
		return err
	}
	var done []item.Entry
	var errs []error
	for _, e := range entries {
		if err := failed[i.present(e.Key, item.Was[prior](e))]; err != nil {
			key := rules.Spelled(spec.Drift{Item: i.kind.Name, Key: e.Key}).Key
			errs = append(errs, fmt.Errorf("restore %s %q to %q: %w", i.kind.Name, key, item.Was[prior](e).Value, reason(err)))
			continue
		}
		done = append(done, e)
	}
	errs = append(errs, item.Replace(ctx, i.journal, done, carried))
	return errors.Join(errs...)
}

// present is the key that an original belongs to by now, "" where what it was of is gone or
// cannot be put back.
func (i *Item) present(key string, was prior) string {
	now, err := i.kind.Files.Read(key)
	switch {
	case err == nil && now != was.Value && i.kind.Stays(key, now):
		return ""
	case !errors.Is(err, fs.ErrNotExist) && !i.replaced(key, was):
		return key
	}
	if m, ok := i.kind.Files.(mover); ok && was.Owner != 0 {
		return m.Moved(key, was.Owner)
	}
	return ""
}

// replaced reports whether what a file belongs to went, and another of its name came.
func (i *Item) replaced(key string, was prior) bool {
	if was.Owner == 0 {
		return false
	}
	now := i.kind.Files.Owner(key)
	return now != 0 && now != was.Owner
}

// prior is the original of a file. Cause names the wanted key that changed it in
// passing; "" is a key that was wanted itself.
type prior struct {
	Value string `json:"value"`
	Cause string `json:"cause,omitempty"`
	Owner uint64 `json:"index,omitempty"`
}

func (i *Item) entry(key string, p prior) item.Entry {
	p.Owner = i.kind.Files.Owner(key)
	return item.Entry{Item: i.kind.Name, Key: key, Prior: item.Raw(p), Scope: item.Kernel}
}

// reason is the cause without the path, which the message names already.
func reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
