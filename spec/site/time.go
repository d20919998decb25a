// SPDX-License-Identifier: Apache-2.0

package site

import (
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/timeservice"
)

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
						r.Warnf(at, "no-effect", "name the servers in one of the two", "%s is the site's own: network.ntp is not written there", service.Config)
					})
				}
			}
		}
	}
}
