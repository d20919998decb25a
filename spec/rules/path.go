// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"strings"
)

// Path checks a path on the wire: absolute, clean, without control characters.
func Path(p string) error {
	if err := AuthoredPath(p); err != nil || path.Clean(p) != p {
		return invalid("path", "", "%.150q is not an absolute, clean path", p)
	}
	return nil
}

// AuthoredPath checks a path as it is written: absolute and without "..".
// path.Clean makes a path on the wire of it.
func AuthoredPath(p string) error {
	up := false
	for part := range strings.SplitSeq(p, "/") {
		up = up || part == ".."
	}
	if up || !path.IsAbs(p) || strings.ContainsFunc(p, func(r rune) bool { return r == '\t' || Hidden(r) }) {
		return invalid("path", "", "%.150q is not an absolute path without ..", p)
	}
	return nil
}

// Pattern checks a path that may have the wildcards of path.Match.
func Pattern(p string) error {
	if err := Path(p); err != nil {
		return err
	}
	if _, err := path.Match(p, ""); err != nil {
		return invalid("path", "", "%.150q is not a pattern", p)
	}
	return nil
}
