// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/safepath"
)

// Adopt returns entries with what is wanted as the original of what is. A path that
// is not there has nothing to put back.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	var walk safepath.Walk
	defer walk.Close()
	list, drift := i.wishes(&walk)
	for _, d := range drift {
		err = errors.Join(err, fmt.Errorf("%s: %s", d.Key, d.Reason))
	}
	for _, w := range list {
		f, openErr := open(&walk, w.path)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		f.close()
		was := w.to(f)
		entries = append(entries, item.Entry{Item: Name, Key: w.path, Prior: item.Raw(was), Applied: item.Raw(applied{Attr: f.attr}), Scope: i.scope(f.dev)})
	}
	return entries, err
}
