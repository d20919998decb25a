// SPDX-License-Identifier: Apache-2.0

package items

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/ethtool"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/mounts"
	"github.com/caisson-os/caisson/bootagent/items/nics"
	"github.com/caisson-os/caisson/bootagent/items/sysctl"
	"github.com/caisson-os/caisson/bootagent/items/sysfs"
	"github.com/caisson-os/caisson/spec"
)

// adopter is a kind that can take over originals which another program recorded.
type adopter interface {
	// Adopt returns the entries that the journal would hold if this item had found
	// the system as it wants it and had made it what it is. It writes nothing.
	Adopt() ([]item.Entry, error)
}

// Adopt returns entries for originals that another program recorded: items that want
// the system as it was before that program. What cannot be put back is in the error;
// the entries hold all the same.
func Adopt(originals []item.Item) ([]item.Entry, error) {
	var entries []item.Entry
	var errs []error
	for _, it := range originals {
		if a, ok := it.(adopter); ok {
			found, err := a.Adopt()
			if entries = append(entries, found...); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", it.Name(), err))
			}
		}
	}
	return entries, errors.Join(errs...)
}

// Kept returns what is set now of what the journal has originals of, as items that want
// it so: for the kinds that outlive a root, or that another program can leave.
func Kept(table []item.Item) (kept spec.Items) {
	for _, it := range table {
		switch k := it.(type) {
		case *mounts.Item:
			kept.Mounts = k.Kept()
		case *ethtool.Item:
			kept.Ethtool = k.Kept()
		case interface{ Kept() map[string]string }:
			values := k.Kept()
			for _, key := range slices.Sorted(maps.Keys(values)) {
				keep(&kept, it.Name(), key, values[key])
			}
		}
	}
	return kept
}

// keep adds the value of a file to what is kept.
func keep(kept *spec.Items, kind, key, value string) {
	switch kind {
	case sysctl.Name:
		kept.Sysctl = append(kept.Sysctl, spec.Sysctl{Key: key, Value: value})
	case sysfs.Name:
		kept.Sysfs = append(kept.Sysfs, spec.Sysfs{Path: key, Value: value})
	case nics.Name:
		parts := strings.SplitN(key, "/", 3) // interface, group and name
		kept.NICs = append(kept.NICs, spec.NIC{ID: key, Match: spec.NICMatch{Name: parts[0]}, Settings: []spec.NICSetting{{Group: parts[1], Name: parts[2], Value: value}}})
	}
}
