// SPDX-License-Identifier: Apache-2.0

package site

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/spec/timeservice"
)

var (
	export   = regexp.MustCompile(`(?m)^\s*["/]`) // exports(5)
	fileRoot = regexp.MustCompile(`[(,]fsid=(0|root)[,)]|(?m)^\s*vers4\s*=\s*(n|0|f|off)`)
)

// checkExports says where NFS version 4 has no root. A server takes / for it, which is a stack of
// images here: the kernel cannot export that, so clients are told that there is no such directory.
func (s *Site) checkExports(r *document.Reader) {
	if !s.HasLayer() {
		return
	}
	var say func()
	for _, p := range s.parts {
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
						r.Within(p.Where(), func() {
							r.Warnf(t.Frag.Owns[f.Path], "no-effect", "export the directory of the others with fsid=0: see docs/storage.md", "%s: nothing has fsid=0, so nothing can be mounted by NFS version 4", f.Path)
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

// checkOpenFiles says which limits of open files the kernel would not grant.
func (s *Site) checkOpenFiles(r *document.Reader) {
	most := rules.OpenFiles
	for _, p := range s.parts {
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
	for _, p := range s.parts {
		for _, t := range p.Targets() {
			if seen[t.Frag] {
				continue
			}
			seen[t.Frag] = true
			for _, l := range t.Frag.Items.Limits {
				if !rules.MoreOpenFiles(l, most) {
					continue
				}
				r.Within(p.Where(), func() {
					r.Warnf(t.Frag.Owns[rules.LimitFile(l.ID)], "no-effect", "set fs.nr_open by conf.sysctl, as large",
						"%s: the kernel grants at most %s open files, so PAM would let nobody in: it waits on a node", l.ID, most)
				})
			}
		}
	}
}

// checkLayerless reports what a site without a layer asks for and nobody can do:
// in a Site an error, unless it says that its hosts are to report it; in
// Divingbell's own files a warning.
func (s *Site) checkLayerless(r *document.Reader) {
	for _, p := range s.parts {
		at, asked := needsLayer(p)
		if !p.Image || p.Off || !asked {
			continue
		}
		const message = "%s needs a layer, and the site has none: it has no effect"
		hint := "add layer:, or attached: true where caisson does not boot the nodes, or manifests." + p.Switch() + ": false"
		r.Within(p.Where(), func() {
			switch {
			case s.doc.Attached.On:
				r.Notef(at, "needs-layer", "", "%s needs a layer: attached hosts report it and do not do it", p.Name)
			case r.Site:
				r.Errorf(at, "needs-layer", hint, message, p.Name)
			default:
				r.Warnf(at, "needs-layer", hint, message, p.Name)
			}
		})
	}
}

// needsLayer reports whether a target of p asks for what only a layer holds, and where.
func needsLayer(p *override.Part) (at report.Pos, asked bool) {
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

// checkTime says where the site writes the file that network.ntp would go into.
func (s *Site) checkTime(r *document.Reader) {
	ntp := func(f *module.Fragment) bool { return f != nil && len(f.Machine.Network.NTP) > 0 }
	asked := false
	for _, p := range s.parts {
		for _, t := range p.Targets() {
			asked = asked || ntp(t.Frag)
		}
	}
	for _, p := range s.parts {
		for _, t := range p.Targets() {
			if !asked || p.Off || t.Frag == nil {
				continue
			}
			for _, service := range timeservice.All {
				if at, own := t.Frag.Owns[service.Config]; own {
					r.Within(p.Where(), func() {
						r.Warnf(at, "no-effect", "name the servers in one of the two",
							"%s is the site's own: network.ntp is not written there", service.Config)
					})
				}
			}
		}
	}
}

var (
	helm    = regexp.MustCompile(`\{\{-?\s*(\.(Values|Release|Chart|Capabilities)\b|(include|tpl|template|required|toYaml)\s)`)
	unfiled = regexp.MustCompile(`^\s*\{\{.*\}\}\s*$`)
)

// words are the keys whose values programs read that have templates of their own.
var words = []string{"args", "argv", "command"}

// warnOfTemplates reports values that a template engine was to fill in: nothing here
// evaluates templates, and a node would be given the braces.
func warnOfTemplates(c *shape.Checker, v *tree.Value, key string) {
	switch {
	case v == nil:
	case v.Kind == tree.Scalar && strings.Contains(v.Text, "{{"):
		if helm.MatchString(v.Text) || unfiled.MatchString(v.Text) && !slices.Contains(words, key) {
			c.Warnf(v.At, "template", "render it first, as 'helm template' does: caisson evaluates no templates", "a template is left in the value")
		}
	default:
		for _, f := range v.Fields {
			c.In(f.Key, func() { warnOfTemplates(c, f.Val, f.Key) })
		}
		for i, e := range v.List {
			if e.Kind != tree.Scalar || strings.Contains(e.Text, "{{") {
				c.In(shape.Nth(i), func() { warnOfTemplates(c, e, key) })
			}
		}
	}
}
