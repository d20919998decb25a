// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// Name returns the fleet's name.
func (s *Site) Name() string { return s.doc.Metadata.Name.S }

// Registry returns where the fleet's artifacts are published, as the site says; "" when it does not.
func (s *Site) Registry() string { return s.doc.Registry.S }

// PrivateKeys returns the files of the layer that may hold a private key.
func (s *Site) PrivateKeys() []string { return s.doc.Layer.Private }

// Dir returns the directory of the site's file: names in it are relative to this.
func (s *Site) Dir() string { return s.dir }

// At is where a Site's metadata was written; nowhere for values that are not a Site.
func (s *Site) At() report.Pos { return s.doc.Metadata.At }

// NameAt is where the fleet's name is written.
func (s *Site) NameAt() report.Pos { return s.doc.Metadata.Name.At }

// Trust returns whose signatures nodes accept.
func (s *Site) Trust() Trust { return s.trust }

// Nodes returns the fleet's machines in the order of the input.
func (s *Site) Nodes() []inventory.Node { return s.nodes }

// Has reports whether the fleet has a node of that name.
func (s *Site) Has(node string) bool {
	_, ok := s.byName[node]
	return ok
}

// LeftOut returns the nodes of a cluster whose identity is in doubt, in order of their names.
// The site has none of them, and what is published for them stays.
func (s *Site) LeftOut() []inventory.LeftOut { return s.left }

// WhyLeftOut says why a node is left out, "" where it is not.
func (s *Site) WhyLeftOut(node string) string {
	for _, l := range s.left {
		if l.Name == node {
			return l.Why
		}
	}
	return ""
}

// KernelArgs returns the arguments that all nodes' kernels are started with, for the
// loader: a node that needs others has to start its kernel a second time.
func (s *Site) KernelArgs() []string {
	var common []string
	first := true
	for f := range s.machines() {
		if first {
			common, first = slices.Clone(f.Machine.Args), false
		}
		common = slices.DeleteFunc(common, func(arg string) bool { return !slices.Contains(f.Machine.Args, arg) })
	}
	return slices.Concat(s.args, common)
}

// machines yields the machine part of each node.
func (s *Site) machines() iter.Seq[*module.Fragment] {
	part := s.parts[slices.IndexFunc(s.parts, func(p *override.Part) bool { return p.Name == module.Machine })]
	return func(yield func(*module.Fragment) bool) {
		for _, n := range s.nodes {
			t := part.Choose(n.Name, n.Label)
			f := t.Frag
			if f == nil {
				f = part.CompileTarget(s.quiet(), t)
			}
			if !yield(f) {
				return
			}
		}
	}
}

// ReportURL is where nodes send reports, for the loader: the URL of all nodes that have
// one, "" where they have several or none.
func (s *Site) ReportURL() string {
	common := ""
	for f := range s.machines() {
		if f.Machine.Agent == nil || f.Machine.Agent.Report == nil || f.Machine.Agent.Report.URL == "" {
			continue
		}
		url := f.Machine.Agent.Report.URL
		if common != "" && common != url {
			return ""
		}
		common = url
	}
	return common
}

// NewStateDisk returns the state disk that loaders are to make of an empty disk; nil for none.
func (s *Site) NewStateDisk() *spec.NewStateDisk { return s.newStateDisk }

// BootFromDisk reports whether nodes are to have a loader on their state disk.
func (s *Site) BootFromDisk() bool { return s.doc.Layer.State.Boot.On }

// BootNetwork returns the network settings for the loaders.
func (s *Site) BootNetwork() []spec.BootNetwork { return s.bootNetwork }

// BootNodes is how nodes that have addresses and no DHCP reach the registry, for their
// loaders: those that a machine can be told for by its cards or its UUID.
func (s *Site) BootNodes() (rows []spec.BootNode) {
	i := 0
	for f := range s.machines() { // in the order of the nodes
		if row, ok := spec.BootNodeOf(s.nodes[i].Match, f.Machine.Network); ok {
			rows = append(rows, row)
		}
		i++
	}
	return rows
}

// HasLayer reports whether the site bakes system layers. Without one its nodes
// keep their own system and only items apply.
func (s *Site) HasLayer() bool { return s.doc.Layer.At != report.Pos{} }

// fragments returns what applies to one node, as module.All, and the key of its
// items: nil when some of them are compiled for this node alone.
func (s *Site) fragments(n inventory.Node) ([]*module.Fragment, *itemsKey) {
	out, key := make([]*module.Fragment, len(s.parts)), &itemsKey{}
	for i, p := range s.parts {
		t := p.Choose(n.Name, n.Label)
		out[i] = t.Frag
		switch {
		case out[i] == nil:
			out[i] = p.CompileTarget(s.quiet(), t)
			if p.Name != module.Machine {
				key = nil
			}
		case key != nil && p.Name != module.Machine: // which has no items
			key[i] = out[i]
		}
	}
	return out, key
}

// quiet is a checker for what has been found good already.
func (s *Site) quiet() *module.Checker {
	return &module.Checker{Checker: &shape.Checker{Report: &report.Report{}}, Layer: s.HasLayer(), Kept: s.kept, Secrets: s.SecretNames()}
}

// Overlay returns what a node is sent. Layer is the digest of the manifest of its
// variant; it is empty for a node that keeps its own system.
func (s *Site) Overlay(node, layer string) (*spec.Overlay, error) {
	i, ok := s.byName[node]
	if !ok {
		return nil, s.noNode(node)
	}
	o, _, err := s.overlay(s.nodes[i], layer)
	return o, err
}

func (s *Site) overlay(n inventory.Node, layer string) (*spec.Overlay, *itemsKey, error) {
	o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: s.Name(), Node: n.Name, Match: n.Match,
		Layer: layer, Persist: s.kept, KernelArgs: s.args}}
	if s.trust.OnExpired != "run" {
		o.OnExpired = s.trust.OnExpired
	}
	fragments, key := s.fragments(n)
	for _, f := range fragments {
		f.AddTo(&o.Items)
		if !s.HasLayer() {
			o.NeedsLayer = append(o.NeedsLayer, f.NeedsLayer()...)
		}
		if len(f.Machine.Args) > 0 {
			o.KernelArgs = slices.Concat(s.args, f.Machine.Args)
		}
		if f.Machine.CAs != nil {
			o.CAs = f.Machine.CAs
		}
		if f.Machine.Agent != nil {
			o.Agent = f.Machine.Agent
		}
		if len(f.Machine.Network.DNS)+len(f.Machine.Network.Search)+len(f.Machine.Network.NTP)+len(f.Machine.Network.Interfaces) > 0 {
			o.Network = f.Machine.Network
		}
	}
	o.Services = s.servicesOf(n)
	if !s.HasLayer() {
		o.NeedsLayer = needPackages(o.NeedsLayer, o.Services)
	}
	switch {
	case s.expanded != nil:
		o.Maintenance = s.expanded.Node(n)
		if s.addRealtime(o, n) {
			key = nil // its items are of this node
		}
	case s.maintenance.Operates():
		return nil, nil, errNoDate
	}
	o.Gates = s.health.Node(n)
	o.Swap = s.swapOf(n)
	if s.seal != nil {
		var err error
		if o.Secrets, err = s.seal(n.Name, s.NeededBy(o)); err != nil {
			return nil, nil, err
		}
	}
	o.SetNeeds()
	return o, key, nil
}

func (s *Site) swapOf(n inventory.Node) *spec.LayerSwap {
	if entry := s.maintenance.Swap(n); entry != nil {
		return entry.Spec(n)
	}
	return nil
}

// SwapOf returns when a node starts over by itself, nil where it does not.
func (s *Site) SwapOf(node string) *spec.LayerSwap {
	if i, ok := s.byName[node]; ok {
		return s.swapOf(s.nodes[i])
	}
	return nil
}

// errNoDate is a defect of the caller.
var errNoDate = errors.New("compile maintenance: the site was read without a date")

func (s *Site) noNode(name string) error {
	return report.Invalidf(inventory.DidYouMean(name, s.nodes), "the site has no node %q", name)
}

// Explain merges the configuration of a node: one of the site's, or one that
// there might be. Labels are laid over those of the site's node.
func (s *Site) Explain(node string, labels map[string]string) (*explain.Explanation, error) {
	if node == "" {
		return nil, report.Invalidf("name one, or any name with labels", "no node is named")
	}
	n := inventory.Node{Name: node, Labels: map[string]string{}}
	i, known := s.byName[node]
	if known {
		n.Labels = maps.Clone(s.nodes[i].Labels)
	}
	maps.Copy(n.Labels, labels)
	e := explain.Node(n, known, s.HasLayer(), s.parts)
	e.AddHealth(s.health.Of(n))
	if entry := s.maintenance.Swap(n); entry != nil {
		e.AddSwap(entry.Written)
	}
	for i := range s.realtime {
		if r := &s.realtime[i]; r.Has(n) {
			e.AddOperation(r.Name, r.From, r.Windows, r.Budget, r.Conf)
		}
	}
	o, _, err := s.overlay(n, "")
	if err != nil {
		return nil, err
	}
	e.KernelArgs = append(e.KernelArgs, o.KernelArgs...)
	return e, nil
}
