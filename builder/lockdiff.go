// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"sort"

	"github.com/caisson-os/caisson/builder/apt"
)

// PackageChange is one package that two locks disagree about. From is empty for
// an added package, To for a removed one.
type PackageChange struct {
	Name  string `json:"name"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Bytes int64  `json:"bytes"` // of package files: how much more there is
}

// CompareLocks lists what changes from old to new, sorted by name.
func CompareLocks(old, new Lock) []PackageChange {
	type pair struct{ from, to *apt.Deb }
	all := map[string]*pair{}
	final := func(l Lock, set func(*pair, *apt.Deb)) {
		// What the packages step fetches replaces what the base had.
		for _, list := range [][]apt.Deb{l.Base, l.Packages} {
			for i := range list {
				if all[list[i].Name] == nil {
					all[list[i].Name] = &pair{}
				}
				set(all[list[i].Name], &list[i])
			}
		}
	}
	final(old, func(p *pair, d *apt.Deb) { p.from = d })
	final(new, func(p *pair, d *apt.Deb) { p.to = d })
	changes := []PackageChange{}
	for name, p := range all {
		c := PackageChange{Name: name}
		if p.from != nil {
			c.From, c.Bytes = p.from.Version, -p.from.Size
		}
		if p.to != nil {
			c.To, c.Bytes = p.to.Version, c.Bytes+p.to.Size
		}
		if p.from == nil || p.to == nil || p.from.SHA256 != p.to.SHA256 {
			changes = append(changes, c)
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Name < changes[j].Name })
	return changes
}
