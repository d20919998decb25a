// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"fmt"
	"strings"
)

// Node returns the machine as a line of a site's nodes, under the name that it asked
// by, or one to replace.
func (m Machine) Node() string {
	var match []string
	if len(m.MACs) > 0 {
		match = append(match, fmt.Sprintf("macs: [%s]", quoted(m.MACs)))
	}
	if len(m.UUIDs) > 0 {
		match = append(match, fmt.Sprintf("uuids: [%s]", quoted(m.UUIDs)))
	}
	name := "NAME"
	if len(m.Names) > 0 {
		name = m.Names[0]
	}
	if match == nil {
		return fmt.Sprintf("- {name: %s}", name)
	}
	return fmt.Sprintf("- {name: %s, match: {%s}}", name, strings.Join(match, ", "))
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }
