// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
)

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
