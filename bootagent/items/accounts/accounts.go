// SPDX-License-Identifier: Apache-2.0

// Package accounts puts over the running root what another layer has in its image of
// accounts: rows of passwd(5), group(5), shadow(5) and their like, SSH keys, rules of
// sudo, and homes of users who are new.
//
// What differs between the image that is stacked and the one that is wanted is changed,
// and nothing else: the databases are merged row by row and field by field, so that what
// programs of this node have added or changed there stays. Once put, it is the node's as
// the files of any layer are: what an operator changes later is not drift. The layer that is
// stacked wants nothing; going back to it puts back what was there before.
//
// It mounts nothing and fetches nothing. Package items imports it, and the node that
// finds out what differs.
package accounts

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Name is the kind.
const Name = "accounts"

// Want holds the changes of the wanted layer to the stacked one. Err says why they are not known.
type Want struct {
	Changes []Change
	Err     error
}

// Systemd holds the calls of the item to the running systemd.
type Systemd interface {
	// State says what a unit does: active, or another word.
	State(ctx context.Context, unit string) (state string, since time.Time, err error)
	// Do reloads a unit and returns when that is done.
	Do(ctx context.Context, job, unit string) error
}

// Item makes a root's accounts those of another layer.
type Item struct {
	want    Want
	root    system
	systemd Systemd
	journal item.Journal
}

// New returns the item; root is the prefix of every path, s is nil where systemd does not
// run.
func New(want Want, root string, s Systemd, j item.Journal) *Item {
	w := want
	w.Changes = slices.Clone(want.Changes)
	slices.SortStableFunc(w.Changes, func(a, b Change) int { return strings.Compare(order(a.Key), order(b.Key)) })
	return &Item{w, system(root), s, j}
}

// order has keys and rules of sudo come before rows, and homes after them.
func order(key string) string {
	switch _, rowName := split(key); {
	case rowName != "":
		return "2" + key
	case path.Dir(key) == "/home":
		return "3" + key
	}
	return "1" + key
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want.Changes) }

// applied holds the journal's record of a key as it was last put.
type applied struct {
	From  Value   `json:"from"`  // of the layer that is stacked
	Wants []Value `json:"wants"` // of the layer that was wanted; while it is being put, what may stand there
}

func (a applied) settled() bool { return len(a.Wants) == 1 }

// step holds the action for one change.
type step struct {
	change  Change
	now     Value
	to      Value // what is wanted, merged with what is there
	applied applied
	known   bool  // the journal has it
	why     error // it cannot be done
}

func (s step) done() bool {
	return s.known && s.applied.settled() && s.applied.Wants[0].is(s.change.To)
}

// entry is the journal's: what is there now is the original, where it has none.
func (s step) entry(a applied) item.Entry {
	return item.Entry{Item: Name, Key: s.change.Key, Prior: item.Raw(s.now), Applied: item.Raw(a), Scope: item.Root}
}

func (s step) ended() item.Entry {
	return s.entry(applied{s.applied.From, []Value{s.change.To.brief()}})
}

// look compares every change with what is there.
func (i *Item) look(ctx context.Context) ([]step, error) {
	if i.want.Err != nil {
		return nil, i.want.Err
	}
	seen, entries := i.view(), item.ByKey(i.journal.Entries(Name))
	var steps []step
	for _, c := range i.want.Changes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := step{change: c, applied: applied{c.From.brief(), []Value{c.From.brief()}}}
		if e, ok := entries[c.Key]; ok {
			s.known = true
			s.applied = item.Did[applied](e)
		}
		if s.done() {
			steps = append(steps, s)
			continue
		}
		if s.now, s.why = seen.read(c.Key); s.why == nil {
			if s.to, s.why = merge(c.Key, s.applied.Wants, c.To, s.now); s.why == nil && !s.now.is(s.to) {
				s.why = i.possible(s, seen)
			}
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// possible says why a change that is due cannot be made here.
func (i *Item) possible(s step, seen *view) error {
	name, rowName := split(s.change.Key)
	if s.now.Kind != absent && s.to.Kind != absent && s.now.Kind != s.to.Kind {
		return fmt.Errorf("it is a %s on this node", s.now.Kind)
	}
	f := strings.Split(s.to.Row, ":")
	if s.now.Kind == absent && len(f) > 2 && (name == "/etc/passwd" || name == "/etc/group") {
		other := seen.tables[name].owner(f[2], rowName)
		if other != "" && !i.leaves(keyOf(name, other)) {
			return fmt.Errorf("%s of this node has the number %s", other, f[2])
		}
	}
	return i.root.writable(name)
}

// leaves reports whether a key goes with this change.
func (i *Item) leaves(key string) bool {
	return slices.ContainsFunc(i.want.Changes, func(c Change) bool { return c.Key == key && c.To.Kind == absent })
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	steps, err := i.look(ctx)
	if err != nil {
		return nil, err
	}
	var drift []spec.Drift
	wanted := map[string]bool{}
	for _, s := range steps {
		wanted[s.change.Key] = true
		d := spec.Drift{Item: Name, Key: s.change.Key, From: s.now.String(), To: s.change.To.String(), Action: spec.ActionChange}
		switch {
		case s.why != nil:
			d.Action, d.Reason = spec.ActionRefuse, s.why.Error()
		case s.done() || s.now.is(s.to):
			continue
		case s.now.Kind == absent:
			d.Action, d.From = spec.ActionAdd, ""
		}
		drift = append(drift, d)
	}
	for _, e := range item.Unwanted(i.journal, Name, wanted) {
		prior, a := item.Was[Value](e), item.Did[applied](e)
		drift = append(drift, spec.Drift{Item: Name, Key: e.Key, Action: spec.ActionRemove,
			From: a.Wants[len(a.Wants)-1].String(), To: prior.String()})
	}
	return drift, nil
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	due := item.Due(drift, spec.ActionAdd, spec.ActionChange)
	if len(due) == 0 {
		return nil
	}
	release, err := i.root.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	steps, err := i.look(ctx) // no other process writes the databases now
	if err != nil {
		return err
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return !due[s.change.Key] || s.done() || s.now.is(s.to) && s.why == nil })
	var errs []error
	var begun, ended []item.Entry
	var writes []write
	for _, s := range steps {
		if s.why != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.change.Key, s.why))
			continue
		}
		a := s.applied
		a.Wants = append(a.Wants, s.change.To.brief())
		begun = append(begun, s.entry(a))
		ended = append(ended, s.ended())
		writes = append(writes, write{s.change.Key, s.to, nil})
	}
	if len(errs) > 0 { // all of it or nothing
		return errors.Join(errs...)
	}
	if err := item.Record(ctx, i.journal, begun...); err != nil {
		return err
	}
	if err := i.write(ctx, writes); err != nil {
		return err
	}
	return i.settle(ctx, ended)
}

// sshd is the unit that reads its settings when it starts, unlike keys and databases.
const sshd, sshdConfig = "ssh.service", "/etc/ssh/sshd_config"

// reload has sshd read its settings again where they are among what was put.
func (i *Item) reload(ctx context.Context, put []item.Entry) error {
	if i.systemd == nil || !slices.ContainsFunc(put, func(e item.Entry) bool { return strings.HasPrefix(e.Key, sshdConfig) }) {
		return nil
	}
	state, _, err := i.systemd.State(ctx, sshd)
	if err != nil || state != "active" {
		return err
	}
	return i.systemd.Do(ctx, "reload", sshd)
}

// settle notes that what was begun is done.
func (i *Item) settle(ctx context.Context, ended []item.Entry) error {
	if err := ctx.Err(); err != nil || len(ended) == 0 {
		return err
	}
	if err := i.reload(ctx, ended); err != nil {
		return err
	}
	return item.Record(ctx, i.journal, ended...)
}

// Remember notes as done what a run that was killed has done.
func (i *Item) Remember(ctx context.Context) error {
	steps, err := i.look(ctx)
	if err != nil {
		return err
	}
	var ended []item.Entry
	for _, s := range steps {
		if s.known && !s.done() && s.why == nil && s.now.is(s.to) {
			ended = append(ended, s.ended())
		}
	}
	return i.settle(ctx, ended)
}

// write is a key and the value that shall stand there; made is what was created there, of a home
// that is to go.
type write struct {
	key  string
	to   Value
	made []Value
}

// write puts values, each file once.
func (i *Item) write(ctx context.Context, writes []write) error {
	for len(writes) > 0 {
		name, rowName := split(writes[0].key)
		same := 1
		for rowName != "" && same < len(writes) && strings.HasPrefix(writes[same].key, name+":") {
			same++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.writeFile(name, rowName != "", writes[:same]); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		writes = writes[same:]
	}
	return nil
}

func (i *Item) writeFile(name string, rows bool, writes []write) error {
	switch w := writes[0]; {
	case !rows && w.to.Kind == absent && path.Dir(name) == "/home":
		return i.root.removeHome(name, w.made)
	case !rows:
		return i.root.put(name, w.to)
	}
	t, err := i.root.table(name)
	if err != nil {
		return err
	}
	if name == shadow {
		if t.own, err = i.cover(writes); err != nil {
			return err
		}
	}
	before := string(t.text())
	slices.SortStableFunc(writes, func(a, b write) int { return a.to.Line - b.to.Line }) // each finds the line that it had
	for _, w := range writes {
		_, rowName := split(w.key)
		if err := t.set(rowName, w.to); err != nil {
			return err
		}
	}
	v := t.attr
	if v.Kind, v.Data = file, t.text(); string(v.Data) == before {
		return nil
	}
	return i.root.put(name, v)
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	release, err := i.root.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b item.Entry) int { return strings.Compare(order(b.Key), order(a.Key)) })
	seen := i.view()
	var writes []write
	for _, e := range entries {
		prior, a := item.Was[Value](e), item.Did[applied](e)
		now, err := seen.read(e.Key)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Key, err)
		}
		if to := takeBack(e.Key, a.From, a.Wants, prior, now); !now.is(to) {
			if to.Kind == row && now.Kind == absent {
				to.Line = prior.Line
			}
			writes = append(writes, write{e.Key, to, a.Wants})
		}
	}
	if err := i.write(ctx, writes); err != nil {
		return err
	}
	if err := i.reload(ctx, entries); err != nil {
		return err
	}
	return item.Forget(ctx, i.journal, entries...)
}
