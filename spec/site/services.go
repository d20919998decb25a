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
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// Services returns the site's services, sorted by name.
func (s *Site) Services() []service.Service { return s.services }

// Locked returns what is locked of a service: its commit and its image.
func (s *Site) Locked(name string) (service.Locked, bool) {
	if s.lock == nil {
		return service.Locked{}, false
	}
	l, ok := s.lock.Services[name]
	return l, ok
}

// ServicesLock returns a copy of the lock to change; an empty one where there is none.
func (s *Site) ServicesLock() *service.Lock {
	l := service.NewLock()
	if s.lock != nil {
		maps.Copy(l.Services, s.lock.Services)
	}
	return l
}

// LockFile is the name of the lock of services, beside the site.
func (s *Site) LockFile() string { return path.Join(s.dir, service.LockName) }

// readServices checks the services, and reads their lock.
func (s *Site) readServices(r *document.Reader) {
	s.services = service.Check(r.Checker, r.Services, s.maintenance, s.nodes, document.Beside)
	if len(s.services) == 0 {
		return
	}
	data := r.Optional(s.LockFile(), service.MaxLock)
	if data == nil {
		return
	}
	lock, err := service.ParseLock(data)
	if err != nil {
		hint := "'caisson services update' writes it"
		var mend interface{ Hint() string }
		if errors.As(err, &mend) {
			hint = mend.Hint()
		}
		r.Report.Add(report.Problem{File: s.LockFile(), Severity: report.Error, Rule: "lock", Message: "read " +
			service.LockName + ": " + err.Error(), Hint: hint})
		return
	}
	s.lock = lock
}

// checkServices reports places of services that something else has, too.
func (s *Site) checkServices(c *shape.Checker) {
	for i := range s.services {
		v := &s.services[i]
		c.In(v.Name, func() {
			places := v.Places()
			for _, to := range slices.Sorted(maps.Keys(places)) {
				s.checkPlace(c, to, places[to])
			}
			for _, d := range v.Directories {
				if d.To == rules.UnitFile(v.Unit)+".d" {
					c.Errorf(places[d.To], "two-owners", "name single files in it", "%s holds what caisson adds to the unit", d.To)
				}
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
	for _, kept := range s.kept {
		if rules.Overlap(to, kept) {
			c.Errorf(at, "two-owners", "name a path that is not kept",
				"%s lies in %s of layer.persist: what is kept there would outlive the service", to, kept)
			return
		}
	}
}

// servicesOf returns what a node gets. What is not locked has no commit.
func (s *Site) servicesOf(n inventory.Node) (out []spec.Service) {
	for i := range s.services {
		v := &s.services[i]
		if !v.Has(n) {
			continue
		}
		one := v.Service
		if l, _ := s.Locked(v.Name); s.Unlocked(v) == "" {
			one.Commit, one.Image = l.Commit, l.Image
		}
		out = append(out, one)
	}
	return out
}

// Unlocked says why a service has no commit to be published at, "" where it has one.
func (s *Site) Unlocked(v *service.Service) string {
	l, ok := s.Locked(v.Name)
	if !ok {
		return "it is not in " + service.LockName
	}
	if stale := l.Stale(v); stale != "" {
		return service.LockName + " is older than the site: " + stale
	}
	return ""
}

// unlocked refuses what has no image to name.
func (s *Site) unlocked(list []spec.Service) error {
	for _, v := range list {
		if v.Image.Digest != "" {
			continue
		}
		i := slices.IndexFunc(s.services, func(o service.Service) bool { return o.Name == v.Name })
		return report.Invalidf("caisson services update", "service %s has no commit: %s", v.Name, s.Unlocked(&s.services[i]))
	}
	return nil
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
