// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// Services returns the site's services, and what is locked of them.
func (s *Site) Services() service.Services { return s.services }

// readServices reads the lock of services that were checked.
func readServices(r *document.Reader, list []service.Service) service.Services {
	out := service.Services{List: list, LockFile: path.Join(r.Dir, service.LockName)}
	if len(list) == 0 {
		return out
	}
	data := r.Optional(out.LockFile, service.MaxLock)
	if data == nil {
		return out
	}
	lock, err := service.ParseLock(data)
	if err != nil {
		hint := "'caisson services update' writes it"
		var mend interface{ Hint() string }
		if errors.As(err, &mend) {
			hint = mend.Hint()
		}
		r.Report.Add(report.Problem{File: out.LockFile, Severity: report.Error, Rule: "lock", Message: "read " +
			service.LockName + ": " + err.Error(), Hint: hint})
		return out
	}
	out.Lock = lock
	return out
}

// checkServices reports places of services that something else has, too.
func (s *Site) checkServices(c *shape.Checker) {
	for i := range s.services.List {
		v := &s.services.List[i]
		c.In(v.Name, func() {
			places := v.Places()
			for _, to := range slices.Sorted(maps.Keys(places)) {
				s.checkPlace(c, to, places[to])
			}
			for _, d := range v.Directories {
				c.Refuse(d.To == rules.UnitFile(v.Unit)+".d", places[d.To], "two-owners", "name single files in it",
					"%s holds what caisson adds to the unit", d.To)
			}
		})
	}
}

func (s *Site) checkPlace(c *shape.Checker, to string, at report.Pos) {
	for _, p := range s.parts {
		for _, owned := range slices.Sorted(maps.Keys(maps.Collect(p.Owned()))) {
			if rules.Overlap(to, path.Clean(owned)) {
				c.Errorf(at, "two-owners", "keep one of the two", "%s is in the way of %s, which %s writes", to, owned, p.Name)
				return
			}
		}
		if p.Always(to) {
			c.Errorf(at, "two-owners", "keep one of the two", "%s is written by %s, too", to, p.Name)
			return
		}
	}
	for _, kept := range s.layer.kept {
		if rules.Overlap(to, kept) {
			c.Errorf(at, "two-owners", "name a path that is not kept",
				"%s lies in %s of layer.persist: what is kept there would outlive the service", to, kept)
			return
		}
	}
}

// needPackages adds the packages of services to what a host that has no layer reports
// where it lacks them.
func needPackages(needs []spec.NeedsLayer, list []spec.Service) []spec.NeedsLayer {
	for _, v := range list {
		if v.Package != "" && !slices.ContainsFunc(needs, func(n spec.NeedsLayer) bool { return n.Item == "apt" && n.Key == v.Package }) {
			needs = append(needs, spec.NeedsLayer{Item: "apt", Key: v.Package, To: "installed"})
		}
	}
	return needs
}
