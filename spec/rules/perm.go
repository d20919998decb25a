// SPDX-License-Identifier: Apache-2.0

package rules

import "github.com/caisson-os/caisson/spec"

// PermPath checks an entry of perm; its path may be a pattern.
func PermPath(p spec.PermPath) error {
	var f fields
	f.add("path", Pattern(p.Path))
	if p.Owner != "" {
		f.add("owner", Owner(p.Owner))
	}
	if p.Group != "" {
		f.add("group", Owner(p.Group))
	}
	_, err := ParseMode(p.Mode)
	f.add("mode", err)
	return f.err()
}
