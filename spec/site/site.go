// SPDX-License-Identifier: Apache-2.0

// Package site holds a validated configuration and compiles it for each node: to a
// literal overlay and the recipe of a system layer, see package spec. Nothing is
// left for a node to decide; what is undecided here is an error.
//
// It is the front door of the packages below it, each one noun: [Parse] reads
// with package document into a tree (tree) of positioned literals; package
// override chooses for every node one target of each module; package module
// decodes (shape), checks and compiles it, with machine; layer is what layers are made of; inventory
// is the nodes; what is wrong goes into one report (report). [Site.Overlay],
// [Site.Compile], [Site.Variants] and [Site.Explain] only put together what the
// modules compiled. Package plan compares a site with what is published, package
// convert makes parts of a site from a host's own files; both stand on this one.
//
// All of it is pure: files come through an [fs.FS], results are values. The command
// line imports it; the agent never does: it brings YAML. docs/site.md and
// docs/divingbell.md describe the format.
package site

import (
	"io/fs"
	"path"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/layer"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Site is a validated configuration: immutable, and safe for concurrent use.
type Site struct {
	doc         document.Site
	dir         string
	trust       Trust
	layer       layer.Layer
	bootNetwork []spec.BootNetwork
	fleet       inventory.Fleet
	parts       override.Parts // as module.All
	services    service.Services

	operations
	rollouts []waves.Rollout
	health   waves.HealthChecks

	secrets document.Secrets
	seal    Seal // nil: nothing is sealed
	encoder encoder
}

// operations are what nodes do over time, and at a date.
type operations struct {
	maintenance maintenance.Maintenance
	realtime    override.Realtime
	expanded    *maintenance.Expanded // nil when the site was read without a date
	date        time.Time
}

// Parse is [ParseAt] without a date: what a site with maintenance sends to nodes
// cannot be compiled then.
func Parse(fsys fs.FS, names ...string) (*Site, *report.Report) {
	return ParseAt(time.Time{}, fsys, names...)
}

// ParseAt reads the named files, merged in this order, and the files they name.
// The report holds all that is wrong; with an error in it the site is nil.
// Calendars are resolved for the months from now on.
func ParseAt(now time.Time, fsys fs.FS, names ...string) (*Site, *report.Report) {
	return ParseFrom(now, nil, fsys, names...)
}

// Cluster holds the parts of a cluster that a site may name.
type Cluster = document.Cluster

// ParseFrom is [ParseAt] for files that may name what is in a cluster.
func ParseFrom(now time.Time, cluster *Cluster, fsys fs.FS, names ...string) (*Site, *report.Report) {
	c := &shape.Checker{Report: &report.Report{}}
	defer c.Report.Sort()
	r := document.Read(c, cluster, fsys, names)
	if r.Tree == nil {
		return nil, c.Report
	}
	s := build(r)
	if c.Report.Err() != nil {
		return nil, c.Report
	}
	if !now.IsZero() {
		s.expanded, s.date = s.maintenance.Expand(now), now
	}
	return s, c.Report
}

// build makes a site of the merged tree.
func build(r *document.Reader) *Site {
	s := &Site{dir: r.Dir}
	if r.Site {
		r.Decode(r.Tree, &s.doc)
	} else {
		v := shape.Read[document.Values](r.Checker, r.Tree)
		s.doc = document.Site{Metadata: document.MetadataDoc{Name: shape.Text{S: "default"}}, Conf: v.Conf,
			Manifests: v.Manifests, Labels: v.Labels}
	}
	document.WarnOfTemplates(r.Checker, r.Tree, "")
	r.Refuse(r.Site && s.doc.Metadata.At == (report.Pos{}), r.Tree.At, "required", "", "%q is missing", "metadata")
	if n := s.doc.Metadata.Name; n.Set() {
		r.Within([]string{"metadata", "name"}, func() { r.Valid(n.At, rules.Fleet(n.S)) })
	}
	if at := s.doc.Registry.At; s.doc.Registry.Set() {
		r.In("registry", func() { r.Valid(at, rules.Registry(s.doc.Registry.S)) })
	}
	beside := func(string) []string { return nil }
	if r.Cluster != nil && r.Cluster.Keys != nil {
		beside = r.Cluster.Keys
	}
	r.In("trust", func() { s.trust = checkTrust(r.Checker, s.doc.Trust, r.Dir, beside) })
	s.trust.site = s.doc.Metadata.At
	written := r.Tree.Get("layer")
	bakes := written != nil
	s.layer.Doc = s.doc.Layer
	if bakes {
		s.layer.Doc.At = written.At // also of null
		r.In("layer", func() { s.layer.Check(r.Checker) })
	}
	r.In("bootNetwork", func() { s.bootNetwork = machine.BootNetwork(r.Checker, r.Tree.Get("bootNetwork"), s.doc.Boot) })
	var nodes []inventory.Node
	var left []inventory.LeftOut
	r.In("nodes", func() { nodes = inventory.Check(r.Checker, r.Nodes) })
	if r.Claims != nil {
		r.In("inventory", func() { nodes, left = inventory.Join(r.Checker, nodes, r.Claims) })
	}
	s.fleet = inventory.NewFleet(nodes, left)
	r.In("layer", func() { s.layer.CheckNodes(r.Checker, nodes) })
	r.In("secrets", func() { s.secrets = r.ReadSecrets(s.doc.Secrets) })
	s.maintenance = maintenance.Check(r.Checker, r.Maintenance)
	s.rollouts = waves.Check(r.Checker, r.Rollouts, s.maintenance)
	s.services = service.Read(r.Checker, service.Check(r.Checker, r.Services, s.maintenance, nodes, document.Beside), r.Dir, r.Optional)
	r.In("swap", func() {
		s.maintenance.AddSwaps(r.Checker, s.doc.Swap, r.Tree.Get("swap"))
		if len(s.doc.Swap) > 0 && !bakes {
			r.Errorf(r.Tree.Get("swap").At, "contradiction", "remove one of the two",
				"a site without a layer has nothing that its nodes start over into")
		}
	})
	s.maintenance.CheckNodes(r.Checker, nodes)
	for _, one := range s.rollouts {
		r.In(one.Name, func() { one.CheckNodes(r.Checker, nodes) })
	}
	s.makeParts(r)
	if a := s.doc.Attached; a.On && bakes {
		r.In("attached", func() {
			r.Errorf(a.At, "contradiction", "remove one of the two", "a site whose nodes caisson does not boot has no layer")
		})
	}
	s.parts.Compile(s.checker(r.Checker), &s.fleet, s.doc.Layer.At)
	part := s.parts.Named(module.Machine)
	machine.CheckAddresses(r.Checker, s.machines(), func(n inventory.Node) *tree.Value {
		return part.Effective(part.Choose(n.Name, n.Label), nil)
	})
	s.realtime = override.CompileRealtime(s.checker(r.Checker), s.maintenance.Realtime(), s.fleet.Nodes,
		func(n inventory.Node) []*module.Fragment { f, _ := s.fragments(n); return f })
	s.services.CheckPlaces(r.Checker, s.parts, s.layer.Kept)
	if !bakes && len(nodes) > 0 {
		s.checkLayerless(r)
	}
	s.parts.CheckTime(r.Checker)
	s.parts.CheckOpenFiles(r.Checker)
	if bakes {
		s.parts.CheckExports(r.Checker)
	}
	r.In("health", func() {
		s.health = waves.ReadHealth(r.Checker, s.doc.Health, r.Tree.Get("health"), s.maintenance)
	})
	return s
}

// OperationsOf returns what a node does over time as it would be published, nil for
// nothing and for a site that was read without a date; and that date.
func (s *Site) OperationsOf(node string) (*spec.Maintenance, time.Time) {
	n, ok := s.fleet.Get(node)
	if !ok || s.expanded == nil {
		return nil, s.date
	}
	return s.expanded.Node(n), s.date
}

// Windows returns the site's windows, by name; of a node those that it waits for.
func (s *Site) Windows(node string) ([]calendar.Window, error) {
	if node == "" {
		return s.maintenance.Windows, nil
	}
	n, err := s.fleet.Node(node)
	if err != nil {
		return nil, err
	}
	return s.maintenance.WindowsOf(n), nil
}

// NeverOpen returns the names of windows that nodes wait for in vain.
func (o *operations) NeverOpen() []string {
	if o.expanded == nil {
		return nil
	}
	return o.expanded.NeverOpen()
}

// makeParts takes the modules' values and overrides apart.
func (s *Site) makeParts(r *document.Reader) {
	var conf document.ConfDoc
	r.In("conf", func() { r.Decode(s.doc.Conf.V, &conf) })
	for i := range module.All {
		m := &module.All[i]
		p := override.New(m)
		s.parts = append(s.parts, p)
		if m.Name == module.Machine {
			r.In(module.Machine, func() { s.machinePart(r, p) })
			continue
		}
		p.Base = s.doc.Conf.V.Get(m.Name)
		p.Off = s.doc.Manifests.Off(m)
		if p.Off && p.Base != nil {
			r.Within([]string{"manifests", m.Switch()}, func() {
				r.Notef(p.Base.At, "off", "", "%s is off: nothing of it is applied, and what an earlier overlay set is put back", m.Name)
			})
		}
		for _, l := range s.doc.Labels {
			if l.Key.S == m.Name && (l.Val.Key.S != "kubernetes.io/os" || l.Val.Value.S != "linux") {
				p.Selector = [2]string{l.Val.Key.S, l.Val.Value.S}
			}
		}
		if stanza := conf.Overrides[m.Stanza()]; stanza != nil {
			r.Within([]string{"conf", "overrides", m.Stanza()}, func() { override.AddStanza(p, r.Checker, *stanza) })
		}
	}
}

// machinePart reads machine: its base is laid over the site's network.
func (s *Site) machinePart(r *document.Reader, p *override.Part) {
	base := &tree.Value{Kind: tree.Mapping}
	if n := r.Tree.Get("network"); n != nil && n.Kind == tree.Mapping {
		base.Fields = append(base.Fields, tree.Field{Key: "network", At: n.At, Val: n})
	}
	v := s.doc.Machine.V
	if v != nil && r.Want(v, tree.Mapping) {
		v = machine.Normal(r.Checker, r.ReadCAs(v))
		base = tree.MergeOverride(base, v.Without("overrides"), func(*tree.Value) {})
	}
	p.Base = base
	over := v.Get("overrides")
	if over == nil {
		return
	}
	var st override.StanzaDoc[machine.Values]
	r.In("overrides", func() {
		r.Decode(over, &st)
		normal := func(conf *shape.Raw[machine.Values]) {
			if conf.V != nil {
				conf.V = machine.Normal(r.Checker, r.ReadCAs(conf.V))
			}
		}
		for i := range st.Hosts {
			normal(&st.Hosts[i].Conf)
		}
		for i := range st.Labels {
			normal(&st.Labels[i].Conf)
		}
		override.AddStanza(p, r.Checker, st)
	})
}

// File is a file that a site names and that only some verbs open.
type File struct {
	Path string     // of the field, as in layer.base.tar
	Name string     // as the fs.FS given to [Parse] opens it
	At   report.Pos // where it was written
}

// Files returns the files beside the site that it names, without keys and without those
// that have been read already. An absolute name is one of the machine that uses it.
func (s *Site) Files() []File {
	var out []File
	add := func(field, name string, v *tree.Value) {
		if name != "" && !path.IsAbs(name) {
			out = append(out, File{field, path.Join(s.dir, name), v.At})
		}
	}
	base, v := s.doc.Layer.Base, s.doc.Layer.V.Get("base")
	add("layer.base.tar", base.Tar, v.Get("tar"))
	if base.Debian != nil {
		add("layer.base.debian.keyring", base.Debian.Keyring, v.Get("debian").Get("keyring"))
	}
	for i := range s.services.List {
		v := &s.services.List[i]
		if v.Git.AllowedSigners != "" {
			out = append(out, File{v.Name + ".git.allowedSigners", v.Git.AllowedSigners, v.SignersAt})
		}
	}
	return out
}
