// SPDX-License-Identifier: Apache-2.0

package override

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// Parts are all modules of a site. What is wrong between two of them is reported here, by what
// their targets compile to.
type Parts []*Part

// Named returns the part of a module; it panics where there is none.
func (all Parts) Named(name string) *Part {
	return all[slices.IndexFunc(all, func(p *Part) bool { return p.Name == name })]
}

// CheckOwners reports a path that two kinds write, and one that a mount would
// hide. Targets that no node combines count as well: they are one edit apart.
func (all Parts) CheckOwners(c *shape.Checker) {
	owners := map[string]*Part{}
	for _, p := range all {
		for path := range p.Owned() {
			owners[path] = p
		}
	}
	for _, p := range all {
		c.Within(p.Where(), func() {
			for path, at := range p.Owned() {
				for _, other := range all {
					switch {
					case other == p:
					case owners[path] == other || other.Always(path):
						c.Errorf(at, "two-owners", "keep one of the two", "%s is written by %s, too", path, other.Name)
					case p.Name != "mounts":
						if target := other.Above(path); target != "" {
							c.Errorf(at, "two-owners", "mount it elsewhere", "%s would be hidden by the mount on %s", path, target)
						}
					}
				}
			}
		})
	}
}

var (
	export   = regexp.MustCompile(`(?m)^\s*["/]`) // exports(5)
	fileRoot = regexp.MustCompile(`[(,]fsid=(0|root)[,)]|(?m)^\s*vers4\s*=\s*(n|0|f|off)`)
)

// CheckExports says where NFS version 4 has no root. A server takes / for it, which is a stack of
// images here: the kernel cannot export that, so clients read that there is no such directory.
func (all Parts) CheckExports(c *shape.Checker) {
	var say func()
	for _, p := range all {
		for _, t := range p.Targets() {
			if p.Off || t.Frag == nil {
				continue
			}
			for _, f := range t.Frag.Items.Files {
				if fileRoot.MatchString(f.Content) {
					return
				}
				if say == nil && exports(f) {
					say = func() {
						c.Within(p.Where(), func() {
							c.Warnf(t.Frag.Owns[f.Path], "no-effect", "export the directory of the others with fsid=0: see docs/storage.md",
								"%s: nothing has fsid=0, so nothing can be mounted by NFS version 4", f.Path)
						})
					}
				}
			}
		}
	}
	if say != nil {
		say()
	}
}

func exports(f spec.File) bool {
	return (f.Path == "/etc/exports" || strings.HasPrefix(f.Path, "/etc/exports.d/")) && export.MatchString(f.Content)
}

// CheckOpenFiles says which limits of open files the kernel would not grant.
func (all Parts) CheckOpenFiles(c *shape.Checker) {
	most := rules.OpenFiles
	for _, p := range all {
		for _, t := range p.Targets() {
			if t.Frag == nil {
				continue
			}
			for _, v := range t.Frag.Items.Sysctl {
				if v.Key == "fs/nr_open" {
					most = v.Value
				}
			}
		}
	}
	seen := map[*module.Fragment]bool{nil: true} // targets share fragments
	for _, p := range all {
		for _, t := range p.Targets() {
			if seen[t.Frag] {
				continue
			}
			seen[t.Frag] = true
			for _, l := range t.Frag.Items.Limits {
				if !rules.MoreOpenFiles(l, most) {
					continue
				}
				c.Within(p.Where(), func() {
					c.Warnf(t.Frag.Owns[rules.LimitFile(l.ID)], "no-effect", "set fs.nr_open by conf.sysctl, as large",
						"%s: the kernel grants at most %s open files, so PAM would let nobody in: it waits on a node", l.ID, most)
				})
			}
		}
	}
}

// CheckTime says where the site writes the file that network.ntp would go into.
func (all Parts) CheckTime(c *shape.Checker) {
	asked := slices.ContainsFunc(all.Named(module.Machine).Targets(), func(t *target) bool {
		return t.Frag != nil && len(t.Frag.Machine.Network.NTP) > 0
	})
	for _, p := range all {
		for _, t := range p.Targets() {
			if !asked || p.Off || t.Frag == nil {
				continue
			}
			for _, service := range spec.TimeServices {
				if at, own := t.Frag.Owns[service.Config]; own {
					c.Within(p.Where(), func() {
						c.Warnf(at, "no-effect", "name the servers in one of the two",
							"%s is the site's own: network.ntp is not written there", service.Config)
					})
				}
			}
		}
	}
}

// Compile merges, checks and compiles every target of every module, for these nodes. Layer is
// where the site says what its layers are made of.
func (all Parts) Compile(c *module.Checker, fleet *inventory.Fleet, layer report.Pos) {
	for _, p := range all {
		c.Within(p.Where(), func() {
			p.Def.Frag = p.CompileTarget(c, p.Def)
			for _, t := range p.Labels {
				t.Frag = p.CompileTarget(c, t)
			}
		})
		p.compileHosts(c, fleet)
		if p.Name == "uamlite" && c.Layer && !slices.ContainsFunc(p.Def.Frag.Recipe.Accounts.Users, module.Administers) {
			c.Within(p.Where(), func() {
				c.Notef(layer, "no-login", "add a user with user_sudo and user_sshkeys", "no user of the layer can log in and become root")
			})
		}
		p.unusedLabels(c, fleet.Nodes)
	}
	all.CheckOwners(c.Checker)
}

// maxShared bounds what is kept compiled of one module's host entries.
const maxShared = 4096

// compileHosts compiles each host entry: for what it reports, and to share the
// result between entries that say the same.
func (p *Part) compileHosts(c *module.Checker, fleet *inventory.Fleet) {
	unknown := 0
	shared := map[string]*module.Fragment{}
	for _, name := range slices.Sorted(maps.Keys(p.Hosts)) {
		t := p.Hosts[name]
		key := string(t.Over.AppendText(nil))
		if t.Frag = shared[key]; t.Frag == nil {
			before := len(c.Report.Problems)
			var f *module.Fragment
			c.Within(p.Where(), func() { f = p.CompileTarget(c, t) })
			if len(c.Report.Problems) == before && len(shared) < maxShared { // a problem has its place in each entry
				shared[key], t.Frag = f, f
			}
		}
		if !fleet.Has(name) && len(fleet.Nodes) > 0 {
			hint := ""
			if unknown++; unknown <= 20 { // a suggestion looks at every node
				hint = inventory.DidYouMean(name, fleet.Nodes)
			}
			c.Within(p.Where(), func() {
				c.Warnf(t.At, "unknown-node", hint, "the entry for host %q has no effect: no node has this name", name)
			})
		}
	}
}

// unusedLabels reports which label entries no node of the inventory has.
func (p *Part) unusedLabels(c *module.Checker, nodes []inventory.Node) {
	if len(nodes) == 0 {
		return
	}
	for _, t := range p.Labels {
		if t.Label != "" && len(t.Values) > 0 && !slices.ContainsFunc(nodes, func(n inventory.Node) bool {
			v, ok := n.Label(t.Label)
			return ok && slices.Contains(t.Values, v)
		}) {
			c.Within(p.Where(), func() {
				c.Warnf(t.At, "unused-label", inventory.LabelHint(t.Label, t.Values[0], nodes),
					"the entry for label %s=%s has no effect: no node has it", t.Label, strings.Join(t.Values, "|"))
			})
		}
	}
}

// NeedsLayer reports whether a target asks for what only a layer holds, and where.
func (p *Part) NeedsLayer() (at report.Pos, asked bool) {
	for _, t := range p.Targets() {
		if t.Frag == nil || len(t.Frag.NeedsLayer()) == 0 {
			continue
		}
		if t == p.Def {
			return p.Base.At, true
		}
		return t.At, true
	}
	return report.Pos{}, false
}
