// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Adopt returns entries with what is wanted as the original of what is, one for each
// feature of the kernel's. An interface that is not there has nothing to put back.
func (i *Item) Adopt() (entries []item.Entry, err error) {
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
				e := item.Entry{Item: Name, Key: key(w.Interface, m), Prior: item.Raw(prior{n.index, w.On, w.On}), Applied: item.Raw(s.Active), Scope: item.Kernel}
				entries = append(entries, e)
			}
		}
	}
	return entries, err
}

// Kept adds the features, as they are now, that were wanted and have an original.
func (i *Item) Kept(items *spec.Items) {
	for _, e := range i.journal.Entries(Name) {
		iface, feature := split(e.Key)
		n := i.look(iface)
		if s, ok := n.features[feature]; ok && n.index == decode(e).Index && e.Applied != nil {
			items.Ethtool = append(items.Ethtool, spec.Feature{Interface: iface, Feature: feature, On: s.Active})
		}
	}
}
