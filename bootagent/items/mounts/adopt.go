// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Adopt returns entries that make the wanted mounts the item's own, as far as they
// are mounted: originally there were none.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	if len(i.want) == 0 {
		return nil, nil
	}
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	for _, w := range i.want {
		p, planErr := i.plan(w, t, nil)
		switch {
		case p.so:
			entries = append(entries, item.Entry{Item: Name, Key: w.Target, Prior: item.Raw(prior{Target: p.target}), Applied: item.Raw(applied{p.source, w}), Scope: item.Root})
		case p.now.point != "":
			err = errors.Join(err, fmt.Errorf("something else is mounted on %s: %s", w.Target, p.now))
		case planErr != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", w.Target, planErr))
		}
	}
	return entries, err
}

// Kept adds what the item mounted, as far as it is mounted.
func (i *Item) Kept(items *spec.Items) {
	entries := i.journal.Entries(Name)
	if len(entries) == 0 {
		return
	}
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return // then nothing can be unmounted, either
	}
	for _, e := range entries {
		p, a := decode(e)
		if _, ok := t.at(p.Target); ok {
			items.Mounts = append(items.Mounts, a.Mount)
		}
	}
}
