// SPDX-License-Identifier: Apache-2.0

package site

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

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
