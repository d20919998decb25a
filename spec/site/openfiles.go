// SPDX-License-Identifier: Apache-2.0

package site

import (
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/module"
)

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
					r.Warnf(t.Frag.Owns[rules.LimitFile(l.ID)], "no-effect", "set fs.nr_open by conf.sysctl, as large", "%s: the kernel grants at most %s open files, so PAM would let nobody in: it waits on a node", l.ID, most)
				})
			}
		}
	}
}
