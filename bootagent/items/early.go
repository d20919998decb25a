// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items/ethtool"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/mounts"
	"github.com/caisson-os/caisson/bootagent/items/nics"
	"github.com/caisson-os/caisson/bootagent/items/swaps"
	"github.com/caisson-os/caisson/bootagent/items/sysctl"
	"github.com/caisson-os/caisson/bootagent/items/sysfs"
)

// The kinds that are set before services start: those that the kernel has at once come before
// those that wait for disks, which may use what they set, as huge pages.
var (
	EarlyKernel = []string{sysctl.Name, sysfs.Name, ethtool.Name, nics.Name}
	EarlyDisks  = []string{mounts.Name, swaps.Name}
)

// Add makes what items of some kinds want and the system lacks. What left the config stays:
// items that are a part of what is wanted do not know what that is.
func Add(ctx context.Context, table []item.Item, j item.Journal, kinds []string) Result {
	r := newRun(slices.DeleteFunc(slices.Clone(table), func(i item.Item) bool { return !slices.Contains(kinds, i.Name()) }), j)
	r.preflight(ctx)
	r.apply(ctx)
	return r.result(ctx)
}

// Renew has kinds of the kernel forget originals that are those of a root before.
func Renew(table []item.Item) error {
	var errs []error
	for _, it := range table {
		if r, ok := it.(interface{ Renew() error }); ok {
			errs = append(errs, r.Renew())
		}
	}
	return errors.Join(errs...)
}
