// SPDX-License-Identifier: Apache-2.0

// Swap space, on disks and in files, is put to use as swapon(8) does, and taken out of use again,
// by swapon(2) and swapoff(2), and judged by /proc/swaps. Space that is not there
// yet is deferred; space that is in use already is owned only where its priority had
// to be changed. Nothing is made: mkswap(8) is left to the maker of the disk or the file.

package mounts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// SwapsName is the kind.
const SwapsName = "swaps"

// Swaps keeps the wanted swap space in use.
type Swaps struct {
	want     []spec.Swap
	proc     string
	dev      string
	patience time.Duration // with the kernel, which reads all that is swapped out
	journal  item.Journal
}

// NewSwaps returns the item for want; proc is /proc, dev is /dev.
func NewSwaps(want []spec.Swap, proc, dev string, j item.Journal) *Swaps {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b spec.Swap) int { return strings.Compare(a.Device, b.Device) })
	return &Swaps{want: want, proc: proc, dev: dev, patience: time.Minute, journal: j}
}

// Name implements item.Item.
func (*Swaps) Name() string { return SwapsName }

// Wanted implements item.Item.
func (i *Swaps) Wanted() int { return len(i.want) }

// swapPrior is how the space was used before; nil for not at all.
type swapPrior struct {
	Was *usedSwap `json:"was,omitempty"`
}

// appliedSwap is the space as it was put to use.
type appliedSwap struct {
	Path string    `json:"path"`
	Swap spec.Swap `json:"swap"`
}

// swapPlan is wanted space, understood against the present system.
type swapPlan struct {
	want spec.Swap
	path string    // without links
	now  *usedSwap // nil: it is not in use
	own  bool      // the journal has an entry
	so   bool      // it is as wanted
}

func (i *Swaps) plan(w spec.Swap, all []usedSwap, entries map[string]item.Entry) (swapPlan, error) {
	p := swapPlan{want: w}
	err := rules.Swap(w)
	if err != nil {
		return p, err
	}
	if p.path, err = i.find(w.Device); err != nil {
		return p, err
	}
	e, own := entries[w.Device]
	p.own = own
	if p.now = swapAt(all, p.path); p.now == nil {
		return p, nil
	}
	p.so = w.Priority == nil || *w.Priority == p.now.Priority
	if a := item.Did[appliedSwap](e); own && a.Path == p.path {
		p.so = p.so && a.Swap.Discard == w.Discard && (w.Priority != nil || p.now.Priority < 0)
	}
	return p, nil
}

// describeSwap returns the wanted swap as people read it.
func describeSwap(w spec.Swap) string {
	text := "swap"
	if w.Priority != nil {
		text += fmt.Sprintf(" priority %d", *w.Priority)
	}
	if w.Discard != "" {
		text += " discard " + w.Discard
	}
	return text
}

// Check implements item.Item.
func (i *Swaps) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	entries := item.ByKey(i.journal.Entries(SwapsName))
	if len(i.want)+len(entries) == 0 {
		return nil, ctx.Err()
	}
	all, err := i.read()
	if err != nil {
		return nil, err
	}
	wanted, paths := map[string]bool{}, map[string]string{}
	for _, w := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.Device] = true
		d := spec.Drift{Item: SwapsName, Key: w.Device, To: describeSwap(w), Action: spec.ActionAdd}
		p, err := i.plan(w, all, entries)
		if first, twice := paths[p.path]; twice && err == nil {
			err = fmt.Errorf("it is the space of %s", first)
		}
		if p.now != nil {
			d.From, d.Action = p.now.String(), spec.ActionChange
		}
		switch {
		case errors.Is(err, ErrMissingDevice):
			d.Action, d.Reason = spec.ActionDefer, err.Error()
		case err != nil:
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
		default:
			paths[p.path] = w.Device
			if p.so {
				continue
			}
		}
		drift = append(drift, d)
	}
	for _, e := range item.Unwanted(i.journal, SwapsName, wanted) {
		was, a := item.Was[swapPrior](e), item.Did[appliedSwap](e)
		drift = append(drift, spec.Drift{Item: SwapsName, Key: e.Key, From: swapAt(all, a.Path).String(), To: was.Was.String(),
			Action: spec.ActionRemove})
	}
	return drift, nil
}

// Apply implements item.Item.
func (i *Swaps) Apply(ctx context.Context, drift []spec.Drift) error {
	var errs []error
	due := item.Due(drift, spec.ActionAdd, spec.ActionChange)
	for _, w := range i.want {
		if !due[w.Device] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.apply(ctx, w); err != nil {
			errs = append(errs, fmt.Errorf("use swap space %s: %w", w.Device, err))
		}
	}
	return errors.Join(errs...)
}

// apply looks again, records, and puts one space to use. A new priority needs it out
// of use for a moment.
func (i *Swaps) apply(ctx context.Context, w spec.Swap) error {
	all, err := i.read()
	if err != nil {
		return err
	}
	entries := item.ByKey(i.journal.Entries(SwapsName))
	before := entries[w.Device]
	p, err := i.plan(w, all, entries)
	if err != nil || p.so {
		return err
	}
	entry := item.Entry{Item: SwapsName, Key: w.Device, Prior: item.Raw(swapPrior{p.now}), Applied: item.Raw(appliedSwap{p.path, w}),
		Scope: item.Kernel}
	if err := i.journal.Record(entry); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.now != nil {
		if err := i.off(ctx, p.path); err != nil {
			return errors.Join(err, i.unrecord(before, entry, p.own))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := swapOn(p.path, w.Priority, w.Discard); err != nil {
		if p.now != nil {
			err = errors.Join(err, swapOn(p.path, p.now.asked(), ""))
		}
		return errors.Join(err, i.unrecord(before, entry, p.own))
	}
	return nil
}

// unrecord makes the journal what it was before a change that was not made.
func (i *Swaps) unrecord(before, entry item.Entry, own bool) error {
	if own {
		return i.journal.Record(before)
	}
	return i.journal.Forget(entry)
}

// Restore implements item.Item.
func (i *Swaps) Restore(ctx context.Context, entries []item.Entry) error {
	var errs []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.restore(ctx, e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, fmt.Errorf("take swap space %s out of use: %w", e.Key, err))
			continue
		}
		errs = append(errs, item.Forget(ctx, i.journal, e))
	}
	return errors.Join(errs...)
}

func (i *Swaps) restore(ctx context.Context, e item.Entry) error {
	was, done := item.Was[swapPrior](e), item.Did[appliedSwap](e)
	all, err := i.read()
	if err != nil {
		return err
	}
	now := swapAt(all, done.Path)
	if now != nil && was.Was != nil && now.same(*was.Was) {
		return nil
	}
	if now != nil {
		if err := i.off(ctx, done.Path); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if was.Was == nil {
		return nil
	}
	if _, err := i.find(filepath.Clean(done.Path)); errors.Is(err, ErrMissingDevice) {
		return nil // it went, and its use with it
	}
	return swapOn(done.Path, was.Was.asked(), "")
}
