// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Advice compares by one file of the tracker.
//
// Which source a package was built from stands in caisson.lock; a layer does not say. So
// packages of a layer have the source that the lock has for the same file, or for the same
// name, and are else judged by their own names, which is said. Packages that the lock has
// from another archive than Debian's are left out, as the tracker does not know them.
type Advice struct {
	tracker *advisory.Tracker
	lock    *packages.LockFile
}

// OpenAdvice reads the tracker's file at name. The lock is the site's, nil where there is none.
func OpenAdvice(name string, lock *packages.LockFile) (*Advice, error) {
	t, err := advisory.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, cli.WithHint(err, "the form is that of https://security-tracker.debian.org/tracker/data/json")
	}
	return &Advice{t, cmp.Or(lock, &packages.LockFile{})}, nil
}

// Locks compares what one lock of a variant has with what another has.
func (a *Advice) Locks(old, next packages.Lock) *advisory.Change {
	known := sourcesOf(old, next)
	if len(old.Base)+len(old.Packages) == 0 { // a first lock closes nothing, and opens nothing
		old = next
	}
	return a.compare(codename(next), known.locked(old), known.locked(next))
}

// Layers compares a layer that nodes would leave with the one that takes its place, nil
// where that is to be built: then with what the lock has for the variant.
func (a *Advice) Layers(v site.Variant, from, to *plan.Layer) *advisory.Change {
	if from == nil {
		return &advisory.Change{Why: "the layer before cannot be read"}
	}
	own, locked := a.lock.Variants[v.Name]
	known := sourcesOf(append(slices.Collect(maps.Values(a.lock.Variants)), own)...) // its own word is the last
	next, release := known.locked(own), codename(own)
	switch {
	case to != nil:
		next = known.installed(to.Packages)
	case v.Recipe.Base.Debian == nil:
		return &advisory.Change{From: from.Digest, Why: "the layer is to be built, and caisson.lock does not have what is in its base"}
	case !locked || !own.Of(v.Recipe):
		return &advisory.Change{From: from.Digest, Why: "the layer is to be built, and caisson.lock is not of its packages"}
	}
	if d := v.Recipe.Base.Debian; release == "" && d != nil {
		release = d.Suite
	}
	c := a.compare(release, known.installed(from.Packages), next)
	c.From = from.Digest
	return c
}

func (a *Advice) compare(release string, from, to []advisory.Package) *advisory.Change {
	switch {
	case release == "":
		return &advisory.Change{Why: "it is not known of which release of Debian the packages are"}
	case !a.tracker.Knows(release):
		return &advisory.Change{Why: fmt.Sprintf("the file of advisories has none of %q", release)}
	}
	return a.tracker.Compare(release, from, to)
}

// codename is the release of Debian that a lock is of.
func codename(l packages.Lock) string {
	for _, r := range l.Releases {
		if r.Origin == "Debian" && !strings.Contains(r.Suite, "-") {
			return r.Suite
		}
	}
	return ""
}

// sources holds the packages of locks: by the sum of a file, and by name.
type sources struct {
	sources map[string]apt.Deb
	foreign map[string]bool // names of packages from other archives than Debian's
}

func sourcesOf(locks ...packages.Lock) sources {
	k := sources{map[string]apt.Deb{}, map[string]bool{}}
	for _, l := range locks {
		foreign := plain.Map(l.Releases, func(r apt.Release) (string, bool) { return r.Archive, r.Origin != "Debian" })
		for _, d := range slices.Concat(l.Base, l.Packages) {
			if k.foreign[d.Name] = foreign[d.Archive]; d.Source != "" {
				k.sources[d.SHA256], k.sources[d.Name] = d, d
			}
		}
	}
	return k
}

// locked returns what a layer of a lock has: what the packages step fetches takes the place
// of what the base had.
func (k sources) locked(l packages.Lock) []advisory.Package {
	last := plain.Map(slices.Concat(l.Base, l.Packages), func(d apt.Deb) (string, spec.InstalledPackage) {
		return d.Name, spec.InstalledPackage{Name: d.Name, Version: d.Version, SHA256: d.SHA256}
	})
	return k.installed(slices.Collect(maps.Values(last)))
}

func (k sources) installed(packages []spec.InstalledPackage) (list []advisory.Package) {
	for _, i := range packages {
		if k.foreign[i.Name] {
			continue
		}
		p := advisory.Package{Name: i.Name, Version: i.Version, Source: k.sources[i.Name].Source}
		if same, ok := k.sources[i.SHA256]; ok {
			p.Source, p.SourceVersion = same.Source, same.SourceVersion
		}
		list = append(list, p)
	}
	return list
}
