// SPDX-License-Identifier: Apache-2.0

// Package units keeps units of systemd as the overlay has them: their files and
// drop-ins, whether they are enabled or masked, and whether they run.
//
// All but the last is files and links below /etc/systemd/system, written before
// PID 1 starts, so that a boot needs no daemon-reload. On a running node systemd is
// told once when files have changed, and asked to start and stop. A unit that has
// run since before its files changed has read the old ones: it is restarted where
// the site says so, and named where not. Package items and the handover stage
// import it.
package units

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "units"

// Systemd holds the calls of the item to the running systemd.
type Systemd interface {
	// State says what a unit does, as in [Active], and since when.
	State(ctx context.Context, unit string) (state string, since time.Time, err error)
	// Do starts, stops or restarts a unit and returns when that is done.
	Do(ctx context.Context, job, unit string) error
	// Outdated returns the services that run since before a moment with other limits,
	// named as in LimitNOFILE= without "Limit", than they would be started with now.
	Outdated(ctx context.Context, limits []string, since time.Time) ([]string, error)
	// Reload has it read the files of units again.
	Reload(ctx context.Context) error
}

// States of a unit.
const (
	Active   = "active"   // it runs, or is about to
	Inactive = "inactive" // also one that there is not, and one that failed
	Once     = "once"     // it does not run, and would end by itself at once
)

// reload is the key of the entry that stands while files have changed that systemd
// has not read.
const reload = "daemon-reload"

// Item keeps the wanted units.
type Item struct {
	want    []spec.Unit
	root    root
	systemd Systemd
	journal item.Journal
	secrets Secrets
	lacking []spec.Drift // units that cannot have their secrets
}

// New returns the item for want in the system at dir; s is nil where systemd does
// not run.
func New(want []spec.Unit, dir string, s Systemd, j item.Journal) *Item {
	return &Item{want: want, root: root(dir), systemd: s, journal: j}
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

func ofFile(key string) bool { return strings.HasPrefix(key, "/") }

// files is the item for the files of all units, and what keeps a unit from having
// those that it should.
func (i *Item) files() (*files.Item, map[string]error) {
	journaled := plain.Each(i.journal.Entries(Name), func(e item.Entry) string { return e.Key })
	var all []files.Want
	problems := map[string]error{}
	had := map[string]bool{}
	add := func(wants []files.Want) {
		for _, w := range wants {
			if !had[w.Path] { // two units may bring one along
				had[w.Path] = true
				all = append(all, w)
			}
		}
	}
	for _, u := range i.want {
		if err := rules.UnitSettings(u); err != nil {
			problems[u.Name] = err
			continue
		}
		add(i.texts(u))
	}
	for _, u := range i.want { // links after all files: a name that has one is not an alias
		if problems[u.Name] != nil {
			continue
		}
		links, err := i.installed(u, journaled)
		if err != nil {
			problems[u.Name] = err
		}
		add(links)
	}
	return files.Named(Name, all, filepath.Join(string(i.root), "etc"), item.Part{Journal: i.journal, In: ofFile}), problems
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	written, problems := i.files()
	drift, err := written.Check(ctx)
	if err != nil {
		return nil, err
	}
	for _, u := range i.want {
		if err := problems[u.Name]; err != nil {
			drift = append(drift, i.problem(u, err))
			continue
		}
		d, _, err := i.due(ctx, u)
		if err != nil {
			return nil, err
		}
		if d.Action != "" {
			drift = append(drift, d)
		}
	}
	drift = append(drift, i.lacking...)
	for _, e := range i.journal.Entries(Name) {
		switch {
		case e.Key == reload && len(i.want) > 0:
			drift = append(drift, spec.Drift{Item: Name, Key: reload, From: "files that systemd has not read", Action: spec.ActionChange})
		case !ofFile(e.Key) && !i.wants(e.Key):
			drift = append(drift, spec.Drift{Item: Name, Key: e.Key, To: item.Was[string](e), Action: spec.ActionRemove})
		}
	}
	return drift, nil
}

func (i *Item) wants(unit string) bool {
	return slices.ContainsFunc(i.want, func(u spec.Unit) bool { return u.Name == unit })
}

// problem is the drift of a unit that cannot be as it should.
func (i *Item) problem(u spec.Unit, err error) spec.Drift {
	d := spec.Drift{Item: Name, Key: u.Name, To: u.State, Action: spec.ActionRefuse, Reason: err.Error()}
	if errors.Is(err, errNoUnit) {
		d.Action = spec.ActionDefer
	}
	return d
}

// due says what is to be done for a unit beside its files, and by which job; no
// action when nothing is.
func (i *Item) due(ctx context.Context, u spec.Unit) (d spec.Drift, job string, err error) {
	if u.Name == rules.ManagerConf {
		d, err = i.outdated(ctx, u)
		return d, "", err
	}
	if u.Run == "" && len(u.DropIns) == 0 && u.Content == "" || template(u.Name) {
		return d, "", nil
	}
	d = spec.Drift{Item: Name, Key: u.Name, To: u.Run}
	if i.systemd == nil {
		if u.Run != "" {
			d.Action, d.Reason = spec.ActionDefer, "systemd does not run"
		}
		return d, "", nil
	}
	state, since, err := i.systemd.State(ctx, u.Name)
	if err != nil {
		return d, "", err
	}
	d.From = state
	newest := i.newest(u)
	switch {
	case u.Run == spec.RunStarted && state == Once:
		d.Action, d.Reason = spec.ActionRefuse, "it runs and ends, so it cannot be kept running; enable it, or give it RemainAfterExit=yes"
	case u.Run == spec.RunStarted && state == Inactive:
		d.Action, job = spec.ActionChange, "start"
	case u.Run == spec.RunStopped && state == Active:
		d.Action, job = spec.ActionChange, "stop"
	case state == Active && since.Before(newest) && u.Restart:
		d.Action, d.From, d.To, job = spec.ActionChange, "with the previous files", "restarted", "restart"
	case state == Active && since.Before(newest):
		d.Action, d.From, d.To = spec.ActionDefer, "with the previous files", "restarted"
		d.Reason = fmt.Sprintf("it runs since %s, and its files changed at %s: it has the old settings until it is restarted",
			since.UTC().Format(time.DateTime), newest.UTC().Format(time.DateTime))
	}
	return d, job, nil
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	written, _ := i.files()
	changed := slices.ContainsFunc(drift, func(d spec.Drift) bool { return ofFile(d.Key) || d.Key == reload })
	affected := slices.DeleteFunc(slices.Clone(i.want), func(u spec.Unit) bool {
		return !slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Key == u.Name || ofUnit(d.Key, u.Name) })
	})
	if i.systemd == nil {
		return written.Apply(ctx, drift)
	}
	if err := i.remember(ctx, affected, changed); err != nil {
		return err
	}
	var errs []error
	if changed {
		errs = append(errs, written.Apply(ctx, drift), i.reload(ctx))
	}
	for _, u := range affected {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, job, err := i.due(ctx, u)
		if err == nil && job != "" {
			err = i.systemd.Do(ctx, job, u.Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// template reports whether a unit is one of which only instances run, or stands for all of
// them; systemd knows no state of it.
func template(unit string) bool { return strings.Contains(unit, "@.") || unit == rules.ManagerConf }

// ofUnit reports whether a path below /etc/systemd/system belongs to a unit.
func ofUnit(path, unit string) bool {
	return filepath.Base(path) == unit || filepath.Base(filepath.Dir(path)) == unit+".d"
}

// remember journals what units did before they were touched, and that systemd is
// to read files again.
func (i *Item) remember(ctx context.Context, units []spec.Unit, changed bool) error {
	known := item.Keys(i.journal.Entries(Name))
	var entries []item.Entry
	for _, u := range units {
		if known[u.Name] || template(u.Name) {
			continue
		}
		state, _, err := i.systemd.State(ctx, u.Name)
		if err != nil {
			return err
		}
		entries = append(entries, entry(u.Name, state))
	}
	if changed && !known[reload] {
		entries = append(entries, entry(reload, ""))
	}
	return item.Record(ctx, i.journal, entries...)
}

// reload tells systemd, and forgets that it had to be told.
func (i *Item) reload(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.systemd.Reload(ctx); err != nil {
		return err
	}
	return item.Forget(ctx, i.journal, item.Entry{Item: Name, Key: reload})
}

func entry(key, state string) item.Entry {
	return item.Entry{Item: Name, Key: key, Prior: item.Raw(state), Scope: item.Root}
}

// Remember journals that a unit which should run did so at the first look: what
// stops it later does not become its original. A unit that runs because of what
// this item wrote is left out.
func (i *Item) Remember(ctx context.Context) error {
	if i.systemd == nil {
		return nil
	}
	entries := i.journal.Entries(Name)
	return i.remember(ctx, slices.DeleteFunc(slices.Clone(i.want), func(u spec.Unit) bool {
		return u.Run == "" || slices.ContainsFunc(entries, func(e item.Entry) bool { return ofUnit(e.Key, u.Name) })
	}), false)
}

// Restore implements item.Item. A unit is stopped before its file goes, and started
// after its file is back.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	written, _ := i.files()
	var paths, states []item.Entry
	pending := false
	for _, e := range entries {
		switch {
		case ofFile(e.Key):
			paths = append(paths, e)
		case e.Key == reload:
			pending = true
		default:
			states = append(states, e)
		}
	}
	if i.systemd == nil {
		return errors.Join(written.Restore(ctx, paths), i.journal.Forget(append(states, item.Entry{Item: Name, Key: reload})...))
	}
	errs := plain.Each(i.stopped(paths, states), func(unit string) error { return i.to(ctx, unit, "stop", Active) })
	if len(paths) > 0 {
		errs = append(errs, i.remember(ctx, nil, true), written.Restore(ctx, paths))
		pending = true
	}
	if pending {
		errs = append(errs, i.reload(ctx))
	}
	for _, e := range states {
		if item.Was[string](e) == Active {
			errs = append(errs, i.to(ctx, e.Key, "start", Inactive))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return i.journal.Forget(states...)
}

// to does a job for a unit that is in the state which asks for it.
func (i *Item) to(ctx context.Context, unit, job, from string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	state, _, err := i.systemd.State(ctx, unit)
	if err != nil || state != from {
		return err
	}
	return i.systemd.Do(ctx, job, unit)
}

// stopped are the units that did not run before: by what was seen, and of those
// that ran from the start, the ones whose file this item wrote, and the ones that
// it enabled and that are not wanted any more.
func (i *Item) stopped(paths, states []item.Entry) []string {
	var out []string
	seen := map[string]bool{}
	for _, e := range states {
		if seen[e.Key] = true; item.Was[string](e) != Active {
			out = append(out, e.Key)
		}
	}
	for _, e := range paths {
		prior := item.Was[struct {
			Kind string `json:"kind"`
		}](e)
		unit, dir := filepath.Base(e.Key), filepath.Dir(e.Key)
		ours := prior.Kind == "" && (dir == own || !i.wants(unit)) && !strings.HasSuffix(dir, ".d")
		if ours && !seen[unit] && !template(unit) {
			seen[unit] = true
			out = append(out, unit)
		}
	}
	return out
}
