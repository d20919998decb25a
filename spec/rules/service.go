// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// MaxServiceDirectories bounds the directories of one service.
const MaxServiceDirectories = 64

// Service checks the fields of a service, but for where its files come from.
func Service(s spec.Service) error {
	var f fields
	f.add("name", ID(s.Name))
	f.add("unit", ServiceUnit(s.Unit))
	f.given("user", s.User, serviceUser)
	f.given("package", s.Package, Package)
	f.add("action", optional(s.Action, []string{spec.ServiceStart, spec.ServiceReload, spec.ServiceRestart, spec.ServiceReloadOrRestart}))
	if n := len(s.Directories); n == 0 || n > MaxServiceDirectories {
		f.add("directories", invalid("range", "", "a service has 1 to %d directories, this one has %d", MaxServiceDirectories, n))
	}
	for i, d := range s.Directories {
		f.add("directories", ServiceDirectory(d))
		for _, other := range s.Directories[:i] {
			f.add("directories", refuse(Overlap(d.To, other.To), "overlap", "", "%s and %s lie in each other", other.To, d.To))
		}
	}
	return f.err()
}

// ServiceUnit checks the unit of a service.
func ServiceUnit(name string) error {
	return cmp.Or(Unit(name),
		refuse(strings.Contains(name, "@."), "unit", "name an instance, as in getty@tty1.service", "%s is a template", name),
		foreignUnit(name))
}

func serviceUser(name string) error {
	return cmp.Or(refuse(strings.Trim(name, digits) == "", "user-name", "name a user that the layer has", "%q is a number", name),
		Owner(name))
}

// ServiceDirectory checks one directory of a service.
func ServiceDirectory(d spec.ServiceDirectory) error {
	var f fields
	f.add("from", serviceFrom(d.From))
	f.add("to", serviceTo(d.To))
	f.add("file", refuse(d.File && d.From == ".", "contradiction", "", "the whole repository is not a file"))
	return f.err()
}

func serviceFrom(p string) error {
	if !Printable(p) || path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../") ||
		slices.Contains(strings.Split(strings.ToLower(p), "/"), ".git") {
		return invalid("path", "as in prometheus/etc; . is all of it", "%.150q is not a path in a repository", p)
	}
	return nil
}

// Printable reports whether s is printable ASCII without blanks at its ends.
func Printable(s string) bool { return printable(s) && strings.TrimSpace(s) == s }

// wholeTo are directories that many things share: a service may have a file in them.
var wholeTo = []string{"/etc/systemd", "/etc/systemd/system", "/etc/systemd/network", "/etc/security", "/etc/pam.d", "/etc/ssh", "/etc/ssl",
	"/var/lib", "/var/log", "/var/cache", "/var/spool"}

func serviceTo(p string) error {
	whole := strings.Count(p, "/") < 2 || slices.Contains(wholeTo, p)
	if err := cmp.Or(Path(p), refuse(whole, "dangerous", "name something below it", "%s is not one service's own", p)); err != nil {
		return err
	}
	if i := slices.IndexFunc(others, func(dir string) bool { return Within(p, dir) }); i >= 0 {
		return invalid("dangerous", "", "%s lies in %s, where a service has no place", p, others[i])
	}
	return replaces(p)
}

// Within reports whether a clean path is dir or lies below it.
func Within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// Overlap reports whether two clean paths are the same or one lies below the other.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }

// GitProtocols lists the protocols that repositories are fetched by.
var GitProtocols = []string{"https", "ssh", "http", "file"}

// GitURL checks the address of a repository. Credentials in it would be in every
// overlay and log.
func GitURL(text string) error {
	const hint = "as in https://git.example.org/conf.git or ssh://git@git.example.org/conf.git"
	u, err := url.Parse(text)
	if err != nil || !Printable(text) || !slices.Contains(GitProtocols, u.Scheme) || u.Path == "" || u.RawQuery != "" ||
		u.Fragment != "" || (u.Scheme == "file") != (u.Host == "") {
		return invalid("url", hint, "%.150q is not the URL of a repository", text)
	}
	if _, secret := u.User.Password(); secret || u.User != nil && u.Scheme != "ssh" {
		return invalid("url", "~/.netrc holds a name and password for git, an agent the keys of ssh", "the URL holds credentials")
	}
	return refuse(strings.HasPrefix(u.Host, "-") || strings.HasPrefix(u.User.Username(), "-"), "url", hint,
		"%.150q is not the URL of a repository", text)
}

// GitRef checks the name of a branch or a tag, see git-check-ref-format(1).
func GitRef(name string) error {
	bad := name == "" || len(name) > 200 || name[0] == '-' || name == "@" || strings.ContainsAny(name, " ~^:?*[\\") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{")
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || part[0] == '.' || strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	return refuse(bad || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }), "git-ref", "",
		"%.150q is not the name of a branch or tag", name)
}

// GitCommit checks the full name of a commit.
func GitCommit(id string) error {
	return refuse(len(id) != 40 && len(id) != 64 || strings.Trim(id, digits+"abcdef") != "", "git-commit",
		"all 40 digits, as git log prints them", "%.80q is not the name of a commit", id)
}
