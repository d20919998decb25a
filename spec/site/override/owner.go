// SPDX-License-Identifier: Apache-2.0

package override

import (
	"iter"
	"maps"
	"path"
	"slices"

	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Owned returns the paths that the part's targets write, and where they were asked
// for. One that several targets write comes as often.
func (p *Part) Owned() iter.Seq2[string, report.Pos] {
	return func(yield func(string, report.Pos) bool) {
		seen := map[*module.Fragment]bool{nil: true} // targets share fragments
		targets := append([]*target{p.Def}, p.Labels...)
		for _, t := range p.Hosts {
			targets = append(targets, t)
		}
		for _, t := range targets {
			if seen[t.Frag] {
				continue
			}
			seen[t.Frag] = true
			for owned, at := range t.Frag.Owns {
				if !yield(owned, at) {
					return
				}
			}
		}
	}
}

// Always reports whether the part writes a path whatever it is asked for.
func (p *Part) Always(name string) bool {
	return slices.ContainsFunc(p.Paths, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Above returns the target of a mount of this part that lies above a path, or "".
func (p *Part) Above(name string) string {
	if p.Name != "mounts" {
		return ""
	}
	above := map[string]bool{}
	for dir := path.Dir(name); dir != "/" && dir != "."; dir = path.Dir(dir) {
		above[dir] = true
	}
	for target := range p.Owned() {
		if above[target] {
			return target
		}
	}
	return ""
}

// Authored returns what was written of the part: the base, then what the overrides
// lay over it.
func (p *Part) Authored() iter.Seq[*tree.Value] {
	return func(yield func(*tree.Value) bool) {
		if !yield(p.Base) {
			return
		}
		for _, t := range p.Labels {
			if !yield(t.Over) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(p.Hosts)) {
			if !yield(p.Hosts[name].Over) {
				return
			}
		}
	}
}
