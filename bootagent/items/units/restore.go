// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

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
	var errs []error
	for _, unit := range i.stopped(paths, states) {
		errs = append(errs, i.to(ctx, unit, "stop", Active))
	}
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
