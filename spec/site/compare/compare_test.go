// SPDX-License-Identifier: Apache-2.0

package compare

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
		got := Overlays(&spec.Overlay{Services: []spec.Service{was}}, &spec.Overlay{Services: []spec.Service{is}})
		if len(got) != 1 || got[0].Item != "service" || got[0].Key != "a" || got[0].Class != spec.ClassService {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// Items in another order are another document; an empty list and none are not.
func TestOrderAndEmptyLists(t *testing.T) {
	overlay := func(items spec.Items) *spec.Overlay { return &spec.Overlay{Items: items} }
	a, b := spec.Sysctl{Key: "vm/a", Value: "1"}, spec.Sysctl{Key: "vm/b", Value: "1"}
	c := Overlays(overlay(spec.Items{Sysctl: []spec.Sysctl{a, b}}), overlay(spec.Items{Sysctl: []spec.Sysctl{b, a}}))
	if len(c) != 1 || c[0].Item != "sysctl" || c[0].Key != "order" || c[0].Class != spec.ClassLive {
		t.Errorf("another order: %+v", c)
	}
	c = Overlays(overlay(spec.Items{Exec: []spec.Exec{{Name: "x", Args: []string{}}}}), overlay(spec.Items{Exec: []spec.Exec{{Name: "x"}}}))
	if len(c) != 0 {
		t.Errorf("an empty list and none: %+v", c)
	}
}
