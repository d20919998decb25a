// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"strings"

	"github.com/caisson-os/caisson/spec"
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

// Suite checks a suite of an archive: a word, or the path of a flat one, which ends with a
// slash, see sources.list(5).
func Suite(s string) error {
	if flat := strings.TrimPrefix(s, "."); flat == "/" {
		return nil
	}
	return SourceWord(s)
}

// Sources checks what a repository says beside its words: a flat one has no components, and
// any other has.
func Sources(r spec.Repository) error {
	for _, dist := range r.Distributions {
		switch flat := strings.HasSuffix(dist, "/"); {
		case flat && len(r.Components)+len(r.Subrepos) > 0:
			return invalid("contradiction", "leave components and subrepos out", "distribution %q is a flat repository, which has neither components nor subrepos", dist)
		case !flat && len(r.Components) == 0:
			return invalid("contradiction", "a flat repository has a distribution that ends with a slash", "distribution %q has no components", dist)
		}
	}
	return nil
}

// SourceURL checks the URL of an archive, which stands in a line of its own words.
func SourceURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || !printable(s) || strings.ContainsAny(s, " []") {
		return invalid("url", "", "%.150q is not the URL of an archive", s)
	}
	if u.User != nil { // which the layer's list of sources would show to everybody
		u.User = nil
		return invalid("url", "a file below /etc/apt/auth.conf.d of the build host has them, see apt_auth.conf(5)", "the URL of archive %.150q has credentials in it", u.String())
	}
	return nil
}
