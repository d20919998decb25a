// SPDX-License-Identifier: Apache-2.0

package site

import (
	"iter"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/module"
)

// Bootstrap returns what the loaders of the site's nodes read, as far as it follows from the
// site's text alone: it has no keys, and its registry is the site's own, "" where there is none.
//
// Its kernel arguments are those of all nodes: a node that needs others has to start its kernel
// a second time. Hints is the URL of all nodes that send reports, "" where they have several.
func (s *Site) Bootstrap() spec.Bootstrap {
	b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: s.Name(), Registry: s.Registry(),
		NewStateDisk: s.layer.newDisk, BootFromDisk: s.layer.doc.State.Boot.On, Network: s.bootNetwork}
	var common, urls []string
	first := true
	for n, m := range s.machines() {
		if first {
			common, first = slices.Clone(m.Args), false
		}
		common = slices.DeleteFunc(common, func(arg string) bool { return !slices.Contains(m.Args, arg) })
		if m.Agent != nil && m.Agent.Report != nil && m.Agent.Report.URL != "" && !slices.Contains(urls, m.Agent.Report.URL) {
			urls = append(urls, m.Agent.Report.URL)
		}
		if row, ok := spec.BootNodeOf(n.Match, m.Network); ok {
			b.Nodes = append(b.Nodes, row)
		}
	}
	if len(urls) == 1 {
		b.Hints = urls[0]
	}
	b.KernelArgs = slices.Concat(s.layer.args, common)
	return b
}

// machines yields the machine part of each node, in the order of the nodes.
func (s *Site) machines() iter.Seq2[inventory.Node, *machine.Settings] {
	part := s.parts.Named(module.Machine)
	return func(yield func(inventory.Node, *machine.Settings) bool) {
		for _, n := range s.fleet.Nodes {
			t := part.Choose(n.Name, n.Label)
			f := t.Frag
			if f == nil {
				f = part.CompileTarget(s.quiet(), t)
			}
			if !yield(n, &f.Machine) {
				return
			}
		}
	}
}
