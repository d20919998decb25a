// SPDX-License-Identifier: Apache-2.0

package items

import (
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
)

// Wrote returns the paths that kinds have written, as a journal has them.
func Wrote(j item.Journal) (paths []string) {
	for _, kind := range []string{files.Name, modules.Name, units.Name, service.Name} {
		for _, e := range j.Entries(kind) {
			paths = append(paths, e.Key)
		}
	}
	for _, e := range j.Entries(accounts.Name) {
		paths = append(paths, accounts.File(e.Key))
	}
	return paths
}
