// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// PermPath checks an entry of perm; its path may be a pattern.
func PermPath(p spec.PermPath) error {
	var f fields
	f.add("path", Pattern(p.Path))
	if !strings.ContainsAny(p.Path, `*?[\`) {
		f.add("path", PermAt(p, p.Path))
	}
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

// PermAt says why an entry of perm cannot be for a path: it is caisson's own, or above that
// and would be given away. Of what a pattern matches such a path is left out.
func PermAt(p spec.PermPath, path string) error {
	if err := Reserved(path); err != nil || !aboveReserved(path) {
		return err
	}
	mode, err := ParseMode(p.Mode)
	if err != nil {
		return nil // said of the mode
	}
	if !slices.Contains([]string{"", "root", "0"}, p.Owner) || mode.Apply(0o755, true)&0o022 != 0 {
		return invalid("reserved", "root owns it, and nobody else writes to it", "caisson's own files lie below %s: who may write to it could replace them", path)
	}
	return nil
}
