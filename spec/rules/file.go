// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"slices"
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
	f.add("path", refuse(!strings.HasPrefix(x.Path, "/etc/") || Path(x.Path) != nil, "path", "", "%.150q is not a clean path below /etc",
		x.Path))
	f.add("content", refuse(len(x.Content) > MaxFile, "too-large", "keep it in a package", "a file must be at most %d KiB", MaxFile>>10))
	f.add("content", refuse(strings.Contains(x.Content, "\x00") || !utf8.ValidString(x.Content), "text", "keep it in a package",
		"the content is not text"))
	if x.Secret != "" {
		f.add("secret", Secret(x.Secret))
		f.add("secret", refuse(x.Content != "", "contradiction", "keep one of the two", "the file has content and a secret"))
	}
	mode, err := ParseMode(x.Mode)
	f.add("mode", err)
	f.add("mode", refuse(mode.Symbolic() || mode.Apply(0, false) > 0o777, "mode", "as in 0640",
		"mode %q is not octal, or sets more than permissions", x.Mode))
	f.given("owner", x.Owner, Owner)
	f.given("group", x.Group, Owner)
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
	return refuse(up || !path.IsAbs(p) || strings.ContainsFunc(p, func(r rune) bool { return r == '\t' || Hidden(r) }), "path", "",
		"%.150q is not an absolute path without ..", p)
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

// caissons are places of caisson's own, with all that lies below them: state, programs,
// units and their drop-ins, and what the agent writes beside the files of others. No kind
// has anything there, whatever it does with it.
var caissons = []string{
	"/dev/caisson", "/etc/caisson", "/run/caisson", "/run/nextroot", "/usr/bin/caisson-agent", "/usr/lib/caisson", "/var/lib/caisson",
	"/etc/systemd/system/caisson-*", "/run/systemd/system/caisson-*", "/usr/lib/systemd/system/caisson-*",
	"/usr/local/lib/systemd/system/caisson-*",
	"/etc/systemd/system/*/caisson-*", "/etc/systemd/system/*/60-caisson-*", "/etc/systemd/system.conf.d/60-caisson-*",
	"/etc/systemd/network/*-caisson-*",
	"/etc/security/limits.d/60-caisson-*", "/etc/modprobe.d/*-caisson-*", "/etc/modules-load.d/*-caisson-*",
}

// databases are files of accounts: programs of the node write them, and so does the agent.
// Owner and mode of them may be kept, and nothing put in their place.
var databases = []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock"}

// shared are directories of the layer and of the running system: what takes their place
// would hide the system. What lies below them may be a site's.
var shared = []string{"/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/proc", "/sys", "/run", "/var", "/var/lib",
	"/usr/bin", "/usr/lib", "/usr/sbin", "/etc/systemd/system"}

// others are directories of the layer, of the kernel and of the running system, with all
// that lies below them: what is kept or put there would be hidden, lost or another's.
var others = []string{"/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr",
	"/var/run", "/var/lock", "/var/tmp", "/var/lib/dpkg"}

// aliases are links of the system, and where they lead.
var aliases = [][2]string{{"/var/run", "/run"}, {"/bin", "/usr/bin"}, {"/sbin", "/usr/sbin"}, {"/lib", "/usr/lib"}}

// canonical is a clean path without the system's links.
func canonical(p string) string {
	for _, a := range aliases {
		if Within(p, a[0]) {
			return a[1] + p[len(a[0]):]
		}
	}
	return p
}

// Reserved says that a clean path is caisson's own.
func Reserved(p string) error {
	parts := strings.Split(canonical(p), "/")
	for _, own := range caissons {
		n := strings.Count(own, "/") + 1
		if len(parts) < n {
			continue
		}
		if ok, err := path.Match(own, strings.Join(parts[:n], "/")); ok && err == nil {
			return invalid("reserved", "", "%s is caisson's own", p)
		}
	}
	return nil
}

// aboveReserved reports whether something of caisson's own lies below a clean path.
func aboveReserved(p string) bool {
	p = canonical(p)
	return slices.ContainsFunc(caissons, func(own string) bool { return p != own && Within(own, p) })
}

// replaces says whose a clean path is, where nothing may be put in its place.
func replaces(p string) error {
	if slices.Contains(databases, p) {
		return invalid("reserved", "users and groups are written as uamlite", "%s is a file of accounts, which programs of the node write", p)
	}
	return Reserved(p)
}

// Hides says whose a clean path is, where nothing may be mounted on it or kept for it.
func Hides(p string) error {
	if slices.Contains(shared, p) || slices.Contains(shared, canonical(p)) {
		hint := ""
		if p == "/proc" {
			hint = "a unit that remounts it sets hidepid=, see docs/from/debian.md"
		}
		return invalid("dangerous", hint, "a mount on %s would hide the system", p)
	}
	return replaces(p)
}

// Persist checks a directory that is kept on the state disk.
func Persist(p string) error {
	if err := Path(p); err != nil {
		return err
	}
	if p == "/var" {
		return invalid("dangerous", "name directories below it, such as /var/log", "/var holds parts of the layer, such as dpkg's state")
	}
	within := func(dir string) bool { return Within(canonical(p), dir) }
	return refuse(Hides(p) != nil || slices.ContainsFunc([]string{"/dev", "/proc", "/run", "/sys", "/usr"}, within), "dangerous",
		"name directories below it", "%s belongs to the layer or to the running system and cannot be kept", p)
}
