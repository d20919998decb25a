// SPDX-License-Identifier: Apache-2.0

package tunable

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Adopt returns entries with what is wanted as the original of what is. A key that is
// not there has nothing to put back.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	defer i.kind.Done()
	for _, w := range i.want {
		now, readErr := i.kind.Files.Read(w.Key)
		if errors.Is(readErr, fs.ErrNotExist) {
			continue
		}
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		e := i.entry(w.Key, prior{Value: w.Value})
		e.Applied = item.Raw(now)
		entries = append(entries, e)
	}
	return entries, err
}

// Kept adds what is set now of the keys that were wanted and have an original.
func (i *Item) Kept(items *spec.Items) {
	if i.kind.Keep == nil {
		return
	}
	defer i.kind.Done()
	kept := map[string]string{}
	for _, e := range i.journal.Entries(i.kind.Name) {
		if now, err := i.kind.Files.Read(e.Key); err == nil && e.Applied != nil {
			kept[e.Key] = now
		}
	}
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		i.kind.Keep(items, key, kept[key])
	}
}
