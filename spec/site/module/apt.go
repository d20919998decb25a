// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type aptDoc struct {
	Wanted packagesDoc `site:"packages" doc:"list, or lists by group"`
	spec.Packages
	Repositories shape.Map[repositoryDoc] `site:"repositories"`
	Exclusive    bool                     `site:"exclusive" doc:"use these repositories only"`
}

var aptModule = Module{Name: "apt", Image: true, Doc: reflect.TypeFor[shape.Raw[aptDoc]](), About: "packages, baked into the layer",
	Compile: (*Checker).apt,
	Baked:   func(r *spec.Recipe) any { return r.Packages },
	NeedsLayer: func(r *spec.Recipe) (out []spec.NeedsLayer) {
		out = plain.Each(r.Packages.Install, func(p spec.Package) spec.NeedsLayer {
			return spec.NeedsLayer{Item: "apt", Key: p.Name, To: cmp.Or(p.Version, "installed")}
		})
		if len(out) == 0 && slices.Equal(r.Packages.Blacklist, DefaultBlacklist) {
			return nil // nobody asked for it
		}
		return append(out, plain.Each(r.Packages.Blacklist, func(name string) spec.NeedsLayer {
			return spec.NeedsLayer{Item: "apt", Key: name, To: "absent"}
		})...)
	},
	Defaults: func(conf map[string]any, baked bool) map[string]any {
		if conf["blacklistpkgs"] != nil || conf == nil && !baked {
			return nil
		}
		return map[string]any{"blacklistpkgs": DefaultBlacklist}
	},
}

type packageDoc struct {
	Name    shape.Text     `site:"name,required"`
	Version shape.Text     `site:"version"`
	From    shape.Text     `site:"from" doc:"release that the package comes from, with what it needs from there, as in trixie-backports"`
	Debconf []spec.Debconf `site:"debconf"`
	At      report.Pos
}

// repositoryDoc has an example.
type repositoryDoc spec.Repository

// packagesDoc is a list, or a map of lists that are joined in order of the groups.
type packagesDoc struct{ list []packageDoc }

func (p *packagesDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind != tree.Mapping {
		c.Decode(v, &p.list)
		return
	}
	groups := shape.Read[shape.Map[[]packageDoc]](c, v)
	slices.SortFunc(groups, func(a, b shape.Entry[[]packageDoc]) int { return strings.Compare(a.Key.S, b.Key.S) })
	for _, g := range groups {
		p.list = append(p.list, g.Val...)
	}
}

func (*packagesDoc) Schema(g *shape.Generator) any {
	list := g.Of(reflect.TypeFor[[]packageDoc](), false)
	return map[string]any{"anyOf": []any{list, map[string]any{"type": "object", "additionalProperties": g.OrNull(list)}}}
}

// DefaultBlacklist is Divingbell's: relied upon, so kept.
var DefaultBlacklist = []string{"inetutils-telnetd", "nis", "ntpdate", "telnetd", "telnetd-ssl"}

func (c *Checker) apt(v *tree.Value, f *Fragment) {
	d := shape.Read[aptDoc](c.Checker, v)
	p := d.Packages
	p.Exclusive, p.Whitelist, p.Hold = d.Exclusive, c.packageNames(v, "whitelistpkgs", d.Whitelist), c.packageNames(v, "hold", d.Hold)
	given := v.Get("blacklistpkgs")
	byDefault := given == nil || given.Kind == tree.Null
	if p.Blacklist = c.packageNames(v, "blacklistpkgs", d.Blacklist); byDefault {
		p.Blacklist = DefaultBlacklist
	}
	p.Install = c.packages(d.Wanted.list, p.Blacklist, byDefault)
	for _, e := range d.Repositories {
		c.Within([]string{"repositories", e.Key.S}, func() {
			p.Repositories = append(p.Repositories, c.repository(v.Get("repositories").Get(e.Key.S), e))
		})
	}
	slices.SortFunc(p.Repositories, func(a, b spec.Repository) int { return strings.Compare(a.ID, b.ID) })
	c.Refuse(p.Strict && len(p.Install) == 0, c.At(v, "strict"), "dangerous", "list the packages to keep",
		"strict without packages would remove everything")
	c.timeService(v, p, d)
	f.Recipe.Packages = p
}

// timeService says when no time service that is known here can be in the layer. A base that
// somebody else made may bring one.
func (c *Checker) timeService(v *tree.Value, p spec.Packages, d aptDoc) {
	has := func(name string) bool {
		return slices.ContainsFunc(p.Install, func(pkg spec.Package) bool { return pkg.Name == name })
	}
	at := report.Pos{}
	for _, pkg := range d.Wanted.list {
		if pkg.Name.S == "openntpd" { // it takes the place, and tells the kernel nothing
			at = pkg.Name.At
		}
	}
	for i, name := range d.Blacklist {
		if name == spec.DefaultTimeService {
			at = c.Nth(v.Get("blacklistpkgs"), i)
		}
	}
	if at != (report.Pos{}) && !slices.ContainsFunc(spec.TimePackages(), has) {
		c.Warnf(at, "no-time", "ask for one of "+strings.Join(spec.TimePackages(), ", "),
			"no time service that is known here sets the clock of nodes: no window opens, and network.ntp is not heard")
	}
}

func (c *Checker) packages(docs []packageDoc, blacklist []string, byDefault bool) []spec.Package {
	var out []spec.Package
	first := map[string]packageDoc{}
	shape.Each(c.Checker, "packages", docs, func(_ int, d packageDoc) {
		if !c.packageName(d.Name) {
			return
		}
		if d.Version.Set() {
			c.Valid(d.Version.At, rules.Version(d.Version.S))
		}
		c.Refuse(d.From.Set() && c.Valid(d.From.At, rules.Release(d.From.S)) && d.Version.Set(), d.From.At, "contradiction",
			"leave one of the two out: a lock has the version", "package %s is asked for in a version and from a release", d.Name.S)
		if slices.Contains(blacklist, d.Name.S) {
			hint := "remove it from one of the two"
			if byDefault {
				hint = "set blacklistpkgs; when it is absent, " + strings.Join(DefaultBlacklist, ", ") + " are refused"
			}
			c.Errorf(d.Name.At, "contradiction", hint, "package %s is requested and blacklisted", d.Name.S)
		}
		if old, dup := first[d.Name.S]; dup {
			if old.Version.S != d.Version.S || old.From.S != d.From.S {
				c.Errorf(d.Name.At, "contradiction", "", "package %s is requested in another version at %s", d.Name.S, old.Name.At)
			} else {
				c.Warnf(d.Name.At, "duplicate", "", "package %s is requested already, at %s", d.Name.S, old.Name.At)
			}
			return
		}
		first[d.Name.S] = d
		out = append(out, spec.Package{Name: d.Name.S, Version: d.Version.S, From: d.From.S, Debconf: d.Debconf})
	})
	slices.SortFunc(out, func(a, b spec.Package) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (c *Checker) packageName(t shape.Text) bool {
	return t.Set() && c.Valid(t.At, rules.Package(t.S))
}

// packageNames returns the names of a key that can be some, as a set, sorted.
func (c *Checker) packageNames(v *tree.Value, key string, names []string) []string {
	var out []string
	c.In(key, func() {
		for i, name := range names {
			if c.packageName(shape.Text{S: name, At: c.Nth(v.Get(key), i)}) {
				out = append(out, name)
			}
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *Checker) repository(v *tree.Value, e shape.Entry[repositoryDoc]) spec.Repository {
	c.Valid(e.Key.At, rules.ID(e.Key.S))
	r, none := spec.Repository(e.Val), report.Pos{}
	r.ID = e.Key.S
	url, key := c.At(v, "url"), c.At(v, "gpgkey")
	if url != none {
		c.Valid(url, rules.SourceURL(r.URL))
	}
	for _, l := range []struct {
		key  string
		list []string
		rule func(string) error
	}{{"distributions", r.Distributions, rules.Suite}, {"components", r.Components, rules.SourceWord},
		{"subrepos", r.Subrepos, rules.SourceWord}} {
		for i, t := range l.list {
			c.Valid(c.Nth(v.Get(l.key), i), l.rule(t))
		}
	}
	if r.Components == nil {
		r.Components = []string{}
	}
	if err := rules.Sources(r); err != nil && len(r.Distributions) > 0 {
		c.Valid(c.At(v), err)
	}
	c.Refuse(key != none && !strings.Contains(r.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----"), key, "key", "as gpg --armor --export prints it",
		"gpgkey is not an armoured public key")
	if key == none && url != none {
		c.Warnf(url, "no-key", "give gpgkey", "repository %s has no key of its own: apt trusts it only if the base's keys signed it", e.Key.S)
	}
	return r
}
