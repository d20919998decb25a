// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Services are those of a site, and what is locked of them.
type Services struct {
	List     []Service // sorted by name
	LockFile string    // name of the lock, beside the site
	Lock     *Lock     // nil where there is none
}

// Locked returns what is locked of a service: its commit and its image.
func (s Services) Locked(name string) (Locked, bool) {
	if s.Lock == nil {
		return Locked{}, false
	}
	l, ok := s.Lock.Services[name]
	return l, ok
}

// CopyLock returns a copy of the lock to change; an empty one where there is none.
func (s Services) CopyLock() *Lock {
	l := NewLock()
	if s.Lock != nil {
		maps.Copy(l.Services, s.Lock.Services)
	}
	return l
}

// Unlocked says why a service has no commit to be published at, "" where it has one.
func (s Services) Unlocked(v *Service) string {
	l, ok := s.Locked(v.Name)
	if !ok {
		return "it is not in " + LockName
	}
	if stale := l.Stale(v); stale != "" {
		return LockName + " is older than the site: " + stale
	}
	return ""
}

// Of returns what a node gets. What is not locked has no commit.
func (s Services) Of(n inventory.Node) (out []spec.Service) {
	for i := range s.List {
		v := &s.List[i]
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

// Publishable refuses what [Services.Of] returned without an image to name.
func (s Services) Publishable(list []spec.Service) error {
	for _, v := range list {
		if v.Image.Digest != "" {
			continue
		}
		i := slices.IndexFunc(s.List, func(o Service) bool { return o.Name == v.Name })
		return report.Invalidf("caisson services update", "service %s has no commit: %s", v.Name, s.Unlocked(&s.List[i]))
	}
	return nil
}
