// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/spec"
)

// MaxFile caps one file, in bytes: it travels in the node's overlay.
const MaxFile = 256 << 10

// File checks a small file below /etc. Its mode is octal and sets permissions only:
// a program that runs as another user belongs into the layer.
func File(x spec.File) error {
	f := file(x)
	f.add("path", replaces(x.Path))
	return f.err()
}

// OwnFile checks a file that caisson writes by itself for what a site wants of another kind.
func OwnFile(x spec.File) error {
	f := file(x)
	return f.err()
}

func file(x spec.File) (f fields) {
	if !strings.HasPrefix(x.Path, "/etc/") || Path(x.Path) != nil {
		f.add("path", invalid("path", "", "%.150q is not a clean path below /etc", x.Path))
	}
	if len(x.Content) > MaxFile {
		f.add("content", invalid("too-large", "keep it in a package", "a file must be at most %d KiB", MaxFile>>10))
	}
	if strings.Contains(x.Content, "\x00") || !utf8.ValidString(x.Content) {
		f.add("content", invalid("text", "keep it in a package", "the content is not text"))
	}
	if x.Secret != "" {
		f.add("secret", Secret(x.Secret))
		if x.Content != "" {
			f.add("secret", invalid("contradiction", "keep one of the two", "the file has content and a secret"))
		}
	}
	mode, err := ParseMode(x.Mode)
	f.add("mode", err)
	if mode.Symbolic() || mode.Apply(0, false) > 0o777 {
		f.add("mode", invalid("mode", "as in 0640", "mode %q is not octal, or sets more than permissions", x.Mode))
	}
	if x.Owner != "" {
		f.add("owner", Owner(x.Owner))
	}
	if x.Group != "" {
		f.add("group", Owner(x.Group))
	}
	return f
}

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
