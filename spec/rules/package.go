// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Package checks the name of a Debian package; an architecture of layers may follow it,
// as in libc6:amd64. Nothing else reaches apt's command line, where a pattern or an
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
	return refuse(qualified && !slices.Contains(spec.Arches, arch), "arch", "run its programs in a container",
		"%s is a package of another architecture than layers have", name)
}

// Version checks the version of a package: one, not a pattern.
func Version(version string) error {
	const rest = lower + upper + digits + ".+:~-"
	if !spelled(version, lower+upper+digits, rest) {
		hint := "a whole version, as apt list -a prints it"
		if strings.Contains(version, "*") {
			hint = "leave it out: the lock has one version until 'caisson lock --update'"
		}
		return invalid("version", hint, "%.80q is not a package version", version)
	}
	return nil
}

// Release checks the suite or codename of a release from which apt takes a package, as in
// NAME/RELEASE of apt-get(8).
func Release(s string) error {
	return refuse(!spelled(s, lower+digits, lower+digits+"._-"), "text", "as in trixie-backports", "%.80q is not the name of a release", s)
}

// SourceWord checks a suite or a component of an archive.
func SourceWord(s string) error {
	return refuse(!spelled(s, lower+upper+digits, lower+upper+digits+"._/+-"), "text", "", "%.80q cannot be in a list of sources", s)
}

// Suite checks a suite of an archive: a word, or the path of a flat one, which ends with a
// slash, see sources.list(5).
func Suite(s string) error {
	if flat := strings.TrimPrefix(s, "."); flat == "/" {
		return nil
	}
	return SourceWord(s)
}

// Sources checks the distributions of a repository: a flat one has no components, and
// any other has.
func Sources(r spec.Repository) error {
	for _, dist := range r.Distributions {
		switch flat := strings.HasSuffix(dist, "/"); {
		case flat && len(r.Components)+len(r.Subrepos) > 0:
			return invalid("contradiction", "leave components and subrepos out",
				"distribution %q is a flat repository, which has neither components nor subrepos", dist)
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
		return invalid("url", "a file below /etc/apt/auth.conf.d of the build host has them, see apt_auth.conf(5)",
			"the URL of archive %.150q has credentials in it", u.String())
	}
	return nil
}

// Files that a node writes for its modules. modprobe(8) reads files in the order of
// their names, and of one option the last value counts: ours sorts behind
// systemd.conf, which has options for bonding and dummy, and what packages bring.
const (
	ModulesLoadFile = "/etc/modules-load.d/60-caisson-modules.conf"
	ModprobeFile    = "/etc/modprobe.d/zz-caisson-modules.conf"
)

// ModuleName returns the name of a module as the kernel spells it.
func ModuleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Module checks the name of a kernel module, in the kernel's spelling.
func Module(name string) error {
	return refuse(len(name) > 55 || !spelled(name, lower+upper+digits+"_", lower+upper+digits+"_"), "module", "letters, digits, _ and -",
		"%.80q is not the name of a module", name)
}

// ModuleParameter checks a parameter of a module. Its value is one word of a line of
// modprobe.d(5).
func ModuleParameter(p spec.ModuleParameter) error {
	var f fields
	f.add("module", Module(p.Module))
	f.add("name", refuse(len(p.Name) > 55 || !spelled(p.Name, lower+upper+digits+"_", lower+upper+digits+"_"), "module-parameter",
		"as modinfo(8) prints it", "%.80q is not the name of a parameter", p.Name))
	f.add("value", refuse(len(p.Value) > 1024 || p.Value != "" && (!printable(p.Value) || strings.ContainsAny(p.Value, " \"'\\#")), "text",
		"one word without blanks, quotes, \\ and #", "%.80q is not the value of a parameter", p.Value))
	return f.err()
}

// Modules checks the lists of modules; parameters are checked one by one.
func Modules(m spec.Modules) error {
	var f fields
	for _, name := range m.Load {
		f.add("load", Module(name))
		f.add("load", refuse(slices.Contains(m.Blacklist, name), "contradiction", "keep one of the two",
			"module %s is to be loaded, and kept from being loaded", name))
	}
	for _, name := range m.Blacklist {
		f.add("blacklist", Module(name))
	}
	return f.err()
}
