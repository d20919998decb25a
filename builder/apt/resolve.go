// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
)

// Deb is one exact package file. Archive and Path say where it was found; the
// sha256 alone says what it is.
type Deb struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
	Archive string `json:"archive"` // ID of the archive
	Path    string `json:"path"`    // below the archive's URI

	// Source is the source package that it was built from, and SourceVersion its version where that
	// is another than the package's. Locks of before 0.10.0 lack them.
	Source        string `json:"source,omitempty"`
	SourceVersion string `json:"sourceVersion,omitempty"`
}

// Request holds the state that apt-get is asked to reach.
type Request struct {
	Install        []string // name, name=version, or a pattern, see apt-patterns(7)
	Upgrade        bool     // everything to its candidate
	AllowDowngrade bool
	Recommends     bool
	Hold           []string
	Never          []string // must not be chosen, not even as a dependency
	Status         string   // dpkg's own record of what is there, instead of Installed
	Installed      []Deb    // already there
	From           *State   // whose indexes describe Installed; nil is the same state
	Manual         []string // of those, asked for by name
}

// Resolve names the packages to fetch for a request, without fetching them.
func (s *State) Resolve(ctx context.Context, r Request) ([]Deb, error) {
	if err := s.writeStatus(ctx, r); err != nil {
		return nil, err
	}
	var never strings.Builder
	for _, name := range r.Never {
		fmt.Fprintf(&never, "Package: %s\nPin: version *\nPin-Priority: -1\n\n", name)
	}
	if err := os.WriteFile(s.path("etc/preferences"), []byte(never.String()), 0o644); err != nil {
		return nil, err
	}
	args := []string{"apt-get", "-q", "-y", "--print-uris", "--no-remove"}
	if r.AllowDowngrade {
		args = append(args, "--allow-downgrades")
	}
	if r.Recommends {
		args = append(args, "-o", "APT::Install-Recommends=true")
	}
	verb := "install"
	if r.Upgrade {
		verb = "dist-upgrade"
	}
	args = append(append(args, "-o", "APT::Get::AllowUnauthenticated=false", verb, "--"), r.Install...)
	out, err := s.run(ctx, args...)
	if err != nil {
		if text := err.Error(); strings.Contains(text, "Unable to locate package") ||
			strings.Contains(text, "was not found") || strings.Contains(text, "has no installation candidate") {
			if why := s.unknown(ctx, r.Install); why != nil {
				return nil, why
			}
		}
		return nil, fmt.Errorf("resolve packages: %w", err)
	}
	var debs []Deb
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "'") {
			d, err := s.parseURI(strings.TrimSpace(line))
			if err != nil {
				return nil, err
			}
			debs = append(debs, d)
		}
	}
	return debs, nil
}

// parseURI reads one line of apt-get --print-uris:
// 'URI' file-name size SHA256:hex.
func (s *State) parseURI(line string) (Deb, error) {
	f := strings.Fields(line)
	if len(f) != 4 {
		return Deb{}, fmt.Errorf("apt-get --print-uris: unexpected line %q", line)
	}
	raw := strings.Trim(f[0], "'")
	hash, ok := strings.CutPrefix(f[3], "SHA256:")
	size, err := strconv.ParseInt(f[2], 10, 64)
	if !ok || len(hash) != 64 || err != nil {
		return Deb{}, fmt.Errorf("apt-get --print-uris: no sha256 or size in %q", line)
	}
	for _, a := range s.archives {
		rest, ok := strings.CutPrefix(raw, strings.TrimRight(a.URI, "/")+"/")
		if !ok {
			continue
		}
		rest, err := url.PathUnescape(rest)
		if err != nil {
			return Deb{}, fmt.Errorf("apt-get --print-uris: %q: %w", raw, err)
		}
		parts := strings.Split(strings.TrimSuffix(path.Base(f[1]), ".deb"), "_")
		if len(parts) != 3 {
			return Deb{}, fmt.Errorf("package file %q: no name_version_arch", f[1])
		}
		version, err := url.PathUnescape(parts[1])
		if err != nil {
			return Deb{}, fmt.Errorf("package file %q: %w", f[1], err)
		}
		return Deb{Name: parts[0], Version: version, Arch: parts[2], SHA256: hash, Size: size, Archive: a.ID, Path: rest}, nil
	}
	return Deb{}, fmt.Errorf("package %s comes from no archive of this build", raw)
}

// writeStatus tells apt what is installed already, as dpkg's status file would.
func (s *State) writeStatus(ctx context.Context, r Request) error {
	var status, extended strings.Builder
	status.WriteString(r.Status)
	if len(r.Installed) > 0 {
		from := s
		if r.From != nil {
			from = r.From
		}
		want := plain.Map(r.Installed, func(d Deb) (string, Deb) { return d.SHA256, d })
		out, err := from.describe(ctx, r.Installed)
		if err != nil {
			return fmt.Errorf("describe the installed packages: %w", err)
		}
		for _, st := range Stanzas(out) {
			d, ok := want[st.Get("SHA256")]
			if !ok {
				continue
			}
			delete(want, d.SHA256)
			selection := "install"
			if slices.Contains(r.Hold, d.Name) {
				selection = "hold"
			}
			fmt.Fprintf(&status, "%sStatus: %s ok installed\n\n", st.Text, selection)
		}
		for _, d := range want {
			return fmt.Errorf("package %s %s is in no index", d.Name, d.Version)
		}
		for _, d := range r.Installed {
			if !slices.Contains(r.Manual, d.Name) {
				fmt.Fprintf(&extended, "Package: %s\nArchitecture: %s\nAuto-Installed: 1\n\n", d.Name, s.arch)
			}
		}
	}
	if err := os.WriteFile(s.path("extended_states"), []byte(extended.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(s.path("status"), []byte(status.String()), 0o644)
}

// Unknown is a package, or a version of one, that no archive of a build has.
type Unknown struct {
	Package, Version string
	Release          string   // that does not have it, where it is asked for from one
	Versions         []string // that there are, newest first; none: there is no such package
	Near             string   // the package that was perhaps meant
	Providers        []string // packages that provide the name, which is not one's own
}

func (u *Unknown) Error() string {
	if u.Release != "" {
		return fmt.Sprintf("package %s is in no release %s of the archives", u.Package, u.Release)
	}
	if len(u.Versions) > 0 {
		return fmt.Sprintf("package %s has no version %s in the archives", u.Package, u.Version)
	}
	if len(u.Providers) > 0 {
		return fmt.Sprintf("%s is a virtual package", u.Package)
	}
	return fmt.Sprintf("package %s is in no archive", u.Package)
}

// Hint names what there is.
func (u *Unknown) Hint() string {
	switch {
	case len(u.Versions) > 0:
		return "there is " + strings.Join(u.Versions[:min(len(u.Versions), 5)], ", ")
	case len(u.Providers) > 0:
		return "name one that provides it: " + strings.Join(u.Providers, ", ")
	case u.Near != "":
		return "did you mean " + u.Near + "?"
	}
	return "look at the components of the base, and at the repositories"
}

// ExitCode is that of invalid input.
func (*Unknown) ExitCode() int { return 2 }

// versions returns of the packages that are requested by name those that the archives have.
func (s *State) versions(ctx context.Context, requests []string) (map[string][]string, error) {
	versions := map[string][]string{}
	for _, r := range requests {
		if name, _, _ := parts(r); !strings.ContainsAny(name, "?~*^+") {
			versions[name] = nil
		}
	}
	args := append([]string{"apt-cache", "madison", "--"}, slices.Sorted(maps.Keys(versions))...)
	out, err := s.run(ctx, args...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) { // name | version | archive
		if f := strings.Split(line, "|"); len(f) == 3 {
			name, version := strings.TrimSpace(f[0]), strings.TrimSpace(f[1])
			if _, asked := versions[name]; asked && !slices.Contains(versions[name], version) {
				versions[name] = append(versions[name], version)
			}
		}
	}
	return versions, nil
}

// Has returns those of some packages that the archives have.
func (s *State) Has(ctx context.Context, names []string) ([]string, error) {
	versions, err := s.versions(ctx, names)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(versions[name]) == 0 }), err
}

// Providers returns the packages that provide a name which is not a package's, sorted.
func (s *State) Providers(ctx context.Context, name string) ([]string, error) {
	out, err := s.run(ctx, "apt-cache", "showpkg", "--", name)
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(out, "Reverse Provides:")
	var names []string
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 {
			names = append(names, f[0])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// parts are those of a request: name, name=version or name/release.
func parts(request string) (name, version, release string) {
	name, version, _ = strings.Cut(request, "=")
	name, release, _ = strings.Cut(name, "/")
	return name, version, release
}

// unknown returns the first of some requests for which there is no package, as an
// [Unknown], or nil.
func (s *State) unknown(ctx context.Context, requests []string) error {
	versions, err := s.versions(ctx, requests)
	if err != nil {
		return err
	}
	for _, r := range requests {
		name, version, release := parts(r)
		has, asked := versions[name]
		switch {
		case !asked || len(has) > 0 && (version == "" && release == "" || slices.Contains(has, version)):
			continue
		case len(has) > 0:
			return &Unknown{Package: name, Version: version, Release: release, Versions: has}
		}
		providers, err := s.Providers(ctx, name)
		if err != nil {
			return err
		}
		if len(providers) > 0 {
			return &Unknown{Package: name, Providers: providers}
		}
		names, err := s.run(ctx, "apt-cache", "pkgnames")
		if err != nil {
			return err
		}
		return &Unknown{Package: name, Version: version, Near: plain.Nearest(name, strings.FieldsSeq(names))}
	}
	return nil
}

// NoSuite is a suite that an archive does not have.
type NoSuite struct {
	Archive, Suite string
	Err            error
}

func (n *NoSuite) Error() string {
	return fmt.Sprintf("%s has no suite %q that can be read", n.Archive, n.Suite)
}
func (n *NoSuite) Unwrap() error { return n.Err }

// Hint says where to look.
func (*NoSuite) Hint() string {
	return "is its name right, and is it still there? Old suites move to archive.debian.org"
}

// ExitCode is that of invalid input.
func (*NoSuite) ExitCode() int { return 2 }

// noSuite returns the suite that apt found no Release file of, as a [NoSuite], or
// err itself.
func (s *State) noSuite(err error) error {
	text := err.Error()
	for _, a := range s.archives {
		for _, suite := range a.Suites {
			if strings.Contains(text, "'"+strings.TrimRight(a.URI, "/")+" "+suite+" Release' does not have a Release file") {
				return &NoSuite{Archive: a.URI, Suite: suite, Err: err}
			}
		}
	}
	return err
}
