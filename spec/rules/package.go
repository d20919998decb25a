// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"strings"
)

// Package checks the name of a Debian package; an architecture may follow it, as
// in libc6:amd64. Nothing else reaches apt's command line, where a pattern or an
// option would mean something.
func Package(name string) error {
	bare, arch, qualified := strings.Cut(name, ":")
	if len(bare) < 2 || !spelled(bare, lower+digits, lower+digits+"+.-") || qualified && !spelled(arch, lower+digits, lower+digits+"-") {
		hint := "as dpkg --list prints it"
		if name, version, pinned := strings.Cut(name, "="); pinned {
			hint = "write {name: " + name + ", version: \"" + version + "\"}"
		}
		return invalid("package-name", hint, "%.80q is not the name of a package", name)
	}
	return nil
}

// Version checks the version of a package: one, not a pattern.
func Version(version string) error {
	const rest = lower + upper + digits + ".+:~-"
	if !spelled(version, lower+upper+digits, rest) {
		return invalid("version", "a whole version, as apt list -a prints it", "%.80q is not a package version", version)
	}
	return nil
}

// SourceWord checks a suite or a component of an archive.
func SourceWord(s string) error {
	if !spelled(s, lower+upper+digits, lower+upper+digits+"._/+-") {
		return invalid("text", "", "%.80q cannot be in a list of sources", s)
	}
	return nil
}

// SourceURL checks the URL of an archive, which stands in a line of its own words.
func SourceURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || !printable(s) || strings.ContainsAny(s, " []") {
		return invalid("url", "", "%.150q is not the URL of an archive", s)
	}
	return nil
}
