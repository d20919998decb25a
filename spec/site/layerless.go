// SPDX-License-Identifier: Apache-2.0

package site

import (
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
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
