// SPDX-License-Identifier: Apache-2.0

package items

import (
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/items/item"
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
		if k, ok := it.(interface{ Kept(*spec.Items) }); ok {
			k.Kept(&kept)
		}
	}
	return kept
}
