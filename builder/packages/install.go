// SPDX-License-Identifier: Apache-2.0

// Package packages installs what the recipe asks for into the tree, with the
// tree's own apt-get(8) and dpkg(1), from a repository that holds exactly the
// packages that were resolved before: a [Lock] names them.
//
// No service starts (policy-rc.d says 101 and there is no init), no network is
// there, configuration files are kept as they were set, and no part of the work
// stays behind.
package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Wanted lists what apt is asked for by name: "name", "name=version" or "name/release".
func Wanted(p spec.Packages) []string {
	return plain.Each(p.Install, func(pkg spec.Package) string {
		return plain.With(plain.With(pkg.Name, "=", pkg.Version), "/", pkg.From)
	})
}

// Names lists the same without versions.
func Names(p spec.Packages) []string {
	return plain.Each(p.Install, func(pkg spec.Package) string { return pkg.Name })
}

// Locked holds the files of a lock for the packages, beside those of the base.
type Locked struct {
	Repo string       // flat repository with all of it
	Debs []apt.Deb    // each is installed, whatever the layer's apt would choose
	Line func(string) // is given what dpkg says of its progress; nil takes none
}

// Install brings the packages into r from what is locked. keep names what may never be
// removed, because the layer would not boot.
func Install(ctx context.Context, r *root.Root, p spec.Packages, keep []string, from Locked) error {
	if err := apt.ForbidServices(r); err != nil {
		return err
	}
	if err := Preseed(ctx, r, p.Install); err != nil {
		return err
	}
	get := func(args ...string) error { return apt.Get(ctx, r, from.Repo, from.Line, args...) }
	install := []string{"install"}
	if p.Upgrade {
		install = []string{"dist-upgrade"}
	}
	if p.AllowDowngrade {
		install = append(install, "--allow-downgrades")
	}
	if p.Recommends {
		install = append(install, "-o", "APT::Install-Recommends=true")
	}
	if len(p.Install) > 0 || p.Upgrade {
		var before []spec.InstalledPackage
		others := from.others(p)
		if len(others) > 0 {
			var err error
			if before, err = Installed(r); err != nil {
				return err
			}
		}
		install = append(install, "--")
		for _, name := range Wanted(p) {
			name, _, _ = strings.Cut(name, "/") // the flat repository is not a release
			install = append(install, name)
		}
		install = append(install, plain.Each(others, func(d apt.Deb) string { return d.Name + ":" + d.Arch + "=" + d.Version })...)
		if err := get(install...); err != nil {
			return fmt.Errorf("install packages: %w", err)
		}
		others = slices.DeleteFunc(others, func(d apt.Deb) bool {
			return slices.ContainsFunc(before, func(b spec.InstalledPackage) bool { return b.Name == d.Name })
		})
		if err := unasked(ctx, r, others); err != nil {
			return err
		}
		if err := needed(ctx, r, others, p.Recommends); err != nil {
			return err
		}
	}
	if err := sources(r, p.Repositories); err != nil {
		return err
	}
	if err := remove(ctx, r, p, keep, get); err != nil {
		return err
	}
	if len(p.Hold) > 0 {
		err := r.Run(ctx, root.Command{Args: append([]string{"apt-mark", "hold", "--"}, p.Hold...)})
		return fault.In(root.Said(err), "hold packages")
	}
	return nil
}

// others are the packages that nobody asked for by name. Of two that another one can do with, the
// layer's apt may choose otherwise than the one that resolved.
func (l Locked) others(p spec.Packages) []apt.Deb {
	asked := Names(p)
	return slices.DeleteFunc(slices.Clone(l.Debs), func(d apt.Deb) bool { return slices.Contains(asked, d.Name) })
}

// unasked marks packages as those that came with others.
func unasked(ctx context.Context, r *root.Root, debs []apt.Deb) error {
	if len(debs) == 0 {
		return nil
	}
	args := append([]string{"apt-mark", "auto", "--"}, plain.Each(debs, func(d apt.Deb) string { return d.Name + ":" + d.Arch })...)
	return fault.In(root.Said(r.Run(ctx, root.Command{Args: args})), "mark packages that came with others")
}

// needed refuses a lock with packages that nobody asked for and nothing needs: a lock is not signed.
func needed(ctx context.Context, r *root.Root, debs []apt.Deb, recommends bool) error {
	if len(debs) == 0 {
		return nil
	}
	var idle []string
	err := r.Run(ctx, root.Command{
		Args: []string{"apt-get", "--simulate", "--yes", "-o", fmt.Sprintf("APT::AutoRemove::RecommendsImportant=%t",
			recommends), "-o", "APT::AutoRemove::SuggestsImportant=false", "autoremove"},
		Line: func(line string) {
			f := strings.Fields(line)
			if len(f) > 1 && f[0] == "Remv" && slices.ContainsFunc(debs, func(d apt.Deb) bool { return d.Name == f[1] }) {
				idle = append(idle, f[1])
			}
		},
	})
	switch {
	case err != nil:
		return fmt.Errorf("ask apt what nothing needs: %w", root.Said(err))
	case len(idle) > 0:
		return fmt.Errorf("%s: in the lock, and nothing needs it: run 'caisson lock --update'", strings.Join(idle, ", "))
	}
	return nil
}

// Users makes the accounts of sysusers.d(5) that no script has made: a boot would,
// with numbers of that boot.
func Users(ctx context.Context, r *root.Root) error {
	if _, err := r.Lstat("/usr/bin/systemd-sysusers"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fault.In(root.Said(r.Run(ctx, root.Command{Args: []string{"systemd-sysusers"}})), "make the accounts of sysusers.d")
}

// sources records where the site's own packages came from, with their keys.
func sources(r *root.Root, list []spec.Repository) error {
	if len(list) == 0 {
		return nil
	}
	var b strings.Builder
	for _, repo := range list {
		suites := append([]string{}, repo.Distributions...)
		for _, dist := range repo.Distributions {
			for _, sub := range repo.Subrepos {
				suites = append(suites, dist+"-"+sub)
			}
		}
		fmt.Fprintf(&b, "# %s\nTypes: deb\nURIs: %s\nSuites: %s\n", repo.ID, repo.URL, strings.Join(suites, " "))
		if len(repo.Components) > 0 { // a flat one has none
			fmt.Fprintf(&b, "Components: %s\n", strings.Join(repo.Components, " "))
		}
		if repo.Key != "" {
			b.WriteString("Signed-By:\n")
			for line := range strings.Lines(strings.TrimSpace(repo.Key)) {
				if line = strings.TrimSpace(line); line == "" {
					line = "."
				}
				b.WriteString(" " + line + "\n")
			}
		}
		b.WriteString("\n")
	}
	return r.WriteFile("/etc/apt/sources.list.d/caisson.sources", []byte(b.String()), 0o644)
}

// Preseed gives debconf its answers, see debconf-set-selections(1).
func Preseed(ctx context.Context, r *root.Root, install []spec.Package) error {
	var b strings.Builder
	for _, pkg := range install {
		for _, d := range pkg.Debconf {
			if strings.ContainsAny(d.Question+d.Type+d.Answer, "\n\r") {
				return fmt.Errorf("debconf answer of package %s to %q: it holds a line break", pkg.Name, d.Question)
			}
			fmt.Fprintf(&b, "%s %s %s %s\n", pkg.Name, d.Question, d.Type, d.Answer)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	err := r.Run(ctx, root.Command{Args: []string{"debconf-set-selections"}, Stdin: strings.NewReader(b.String())})
	return fault.In(root.Said(err), "set debconf answers")
}

// SetUp lists the packages with answers to debconf that r has: they have asked before.
func SetUp(r *root.Root, install []spec.Package) ([]string, error) {
	there, err := Installed(r)
	return plain.Pick(install, func(pkg spec.Package) (string, bool) {
		is := func(p spec.InstalledPackage) bool { return p.Name == pkg.Name }
		return pkg.Name, len(pkg.Debconf) > 0 && slices.ContainsFunc(there, is)
	}), err
}

// Unmet lists what the packages of these names recommend and r has not, as "of: one | other".
func Unmet(r *root.Root, names []string) (list []string, err error) {
	all, err := installed(r)
	if err != nil {
		return nil, err
	}
	there, recommends := map[string]bool{}, map[string]string{}
	for _, st := range all {
		there[st.Get("Package")], recommends[st.Get("Package")] = true, st.Get("Recommends")
		for name := range strings.SplitSeq(st.Get("Provides"), ",") {
			there[bare(name)] = true
		}
	}
	for _, name := range names {
		for one := range strings.SplitSeq(recommends[name], ",") {
			any := plain.Each(strings.Split(one, "|"), bare)
			if any[0] != "" && !slices.ContainsFunc(any, func(other string) bool { return there[other] }) {
				list = append(list, name+": "+strings.Join(any, " | "))
			}
		}
	}
	return list, nil
}

// bare is a package of a relation without its version and architecture.
func bare(relation string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(relation), " ")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// Installed lists what dpkg says is in the tree, sorted as dpkg has it.
func Installed(r *root.Root) ([]spec.InstalledPackage, error) {
	all, err := installed(r)
	return plain.Each(all, func(st apt.Stanza) spec.InstalledPackage {
		return spec.InstalledPackage{Name: st.Get("Package"), Version: st.Get("Version"), Arch: st.Get("Architecture")}
	}), err
}

func installed(r *root.Root) ([]apt.Stanza, error) {
	data, err := r.ReadFile("/var/lib/dpkg/status")
	gone := func(s apt.Stanza) bool { return !strings.HasSuffix(s.Get("Status"), " ok installed") }
	return slices.DeleteFunc(apt.Stanzas(string(data)), gone), err
}

// Check refuses requests that contradict themselves, all at once.
func Check(p spec.Packages) error {
	var problems []error
	asked := map[string]string{}
	for _, pkg := range p.Install {
		if err := rules.Package(pkg.Name); err != nil {
			problems = append(problems, err)
			continue
		}
		if err := rules.Version(pkg.Version); pkg.Version != "" && err != nil {
			problems = append(problems, fmt.Errorf("package %s: %w", pkg.Name, err))
		}
		if err := rules.Release(pkg.From); pkg.From != "" && err != nil {
			problems = append(problems, fmt.Errorf("package %s: %w", pkg.Name, err))
		}
		if other, twice := asked[pkg.Name]; twice && other != pkg.Version {
			problems = append(problems, fmt.Errorf("package %s: asked for in two versions, %q and %q", pkg.Name, other, pkg.Version))
		}
		asked[pkg.Name] = pkg.Version
	}
	for _, n := range p.Blacklist {
		if _, wanted := asked[n]; wanted {
			problems = append(problems, fmt.Errorf("package %s: asked for and blacklisted", n))
		}
	}
	for _, list := range [][]string{p.Blacklist, p.Whitelist, p.Hold} {
		for _, n := range list {
			if err := rules.Package(n); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

// remove takes out what must not be there: the blacklist, and with strict all
// that nobody asked for and nothing needs. What the layer boots with, what is
// asked for and the whitelist are never removed: that is an error.
func remove(ctx context.Context, r *root.Root, p spec.Packages, keep []string, get func(...string) error) error {
	installed, err := Installed(r)
	if err != nil {
		return err
	}
	names := plain.Each(installed, func(pkg spec.InstalledPackage) string { return pkg.Name })
	wanted := slices.Concat(keep, p.Whitelist, Names(p))
	purge := slices.DeleteFunc(slices.Clone(p.Blacklist), func(name string) bool { return !slices.Contains(names, name) })
	if len(purge) > 0 {
		if err := checkPurge(ctx, r, purge, wanted); err != nil {
			return err
		}
		if err := get(append([]string{"purge", "--"}, purge...)...); err != nil {
			return fmt.Errorf("remove %s: %w", strings.Join(purge, ", "), err)
		}
	}
	if !p.Strict {
		return nil
	}
	wanted = append(wanted, purge...)
	if auto := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(wanted, name) }); len(auto) > 0 {
		if err := r.Run(ctx, root.Command{Args: append([]string{"apt-mark", "auto", "--"}, auto...)}); err != nil {
			return fmt.Errorf("mark unrequested packages: %w", root.Said(err))
		}
	}
	if err := get("autoremove", "--purge", "-o", "APT::AutoRemove::RecommendsImportant=false", "-o",
		"APT::AutoRemove::SuggestsImportant=false"); err != nil {
		return fmt.Errorf("remove unrequested packages: %w", err)
	}
	return nil
}

// checkPurge asks apt what else would go.
func checkPurge(ctx context.Context, r *root.Root, purge, wanted []string) error {
	var victims []string
	err := r.Run(ctx, root.Command{
		Args: append([]string{"apt-get", "--simulate", "--yes", "purge", "--"}, purge...),
		Line: func(line string) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "Purg" || f[0] == "Remv") && slices.Contains(wanted, f[1]) {
				victims = append(victims, f[1])
			}
		},
	})
	if len(victims) > 0 {
		return fmt.Errorf("blacklisted %s cannot be removed: %s needs it, and is asked for", strings.Join(purge, ", "),
			strings.Join(victims, ", "))
	}
	return fault.In(root.Said(err), "remove %s", strings.Join(purge, ", "))
}
