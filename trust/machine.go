// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/oci/sign"
)

// Identity is what the machine is. Node is its name (from the kernel command
// line, the state disk or DHCP), "" when only its hardware is known.
// Addresses and UUIDs are lower case, as in spec.Match.
type Identity struct {
	Node  string
	MACs  []string
	UUIDs []string
}

// Tags are the names under which the overlay may be found, most exact first.
func (id Identity) Tags() []string {
	var tags []string
	if id.Node != "" {
		tags = append(tags, id.Node)
	}
	return append(tags, AliasTags(id.MACs, id.UUIDs)...)
}

// AliasTags are the tags that a publisher gives an overlay besides its name.
func AliasTags(macs, uuids []string) []string {
	var tags []string
	for _, uuid := range uuids {
		tags = append(tags, "uuid-"+uuid)
	}
	for _, mac := range macs {
		tags = append(tags, "mac-"+strings.ReplaceAll(mac, ":", ""))
	}
	return tags
}

// is reports whether the machine has one of the identifiers. Without any, the name
// alone binds, so there must be one.
func (id Identity) is(m sign.Match) bool {
	if len(m.MACs) == 0 && len(m.UUIDs) == 0 {
		return id.Node != ""
	}
	has := func(mine []string) func(string) bool {
		return func(s string) bool { return slices.Contains(mine, s) }
	}
	return slices.ContainsFunc(m.MACs, has(id.MACs)) || slices.ContainsFunc(m.UUIDs, has(id.UUIDs))
}
