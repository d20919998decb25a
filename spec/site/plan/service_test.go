// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// TestPlanShowsServices names a service once for whatever differs of it.
func TestPlanShowsServices(t *testing.T) {
	was := spec.Service{Name: "a", Unit: "a.service", Commit: "1", Image: spec.Blob{Digest: "sha256:1", Size: 1}, User: "u", Package: "p", Action: "start",
		Directories: []spec.ServiceDirectory{{From: "a", To: "/etc/a"}}}
	for what, change := range map[string]func(*spec.Service){
		"commit": func(s *spec.Service) { s.Commit = "2" }, "image": func(s *spec.Service) { s.Image.Digest = "sha256:2" }, "unit": func(s *spec.Service) { s.Unit = "b.service" },
		"user": func(s *spec.Service) { s.User = "v" }, "package": func(s *spec.Service) { s.Package = "" }, "action": func(s *spec.Service) { s.Action = "reload" },
		"directory": func(s *spec.Service) { s.Directories = []spec.ServiceDirectory{{From: "a", To: "/etc/a", File: true}} },
	} {
		is := was
		change(&is)
		got := compareOverlays(&spec.Overlay{Services: []spec.Service{was}}, &spec.Overlay{Services: []spec.Service{is}})
		if len(got) != 1 || got[0].Item != "service" || got[0].Key != "a" || got[0].Class != spec.ClassService {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
