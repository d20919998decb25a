// SPDX-License-Identifier: Apache-2.0

package override

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/module"
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
