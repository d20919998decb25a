// SPDX-License-Identifier: Apache-2.0

package site

import (
	"io/fs"
	"regexp"
	"sync"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Site is a configuration that was read and found good. It is immutable and may
// be used by many at once.
type Site struct {
	doc    document
	dir    string
	trust  Trust
	args   []string // layer.kernel.args
	kept   []string // layer.persist
	nodes  []Node
	byName map[string]int
	parts  []*part // as modules

	encodedLock sync.RWMutex
	encoded     map[itemsKey][]byte // items shared by many nodes, encoded
}

// Parse reads the named files, merged in this order, and the files they name.
// The report holds all that is wrong; with an error in it the site is nil.
func Parse(fsys fs.FS, names ...string) (*Site, *report.Report) {
	c := &checker{report: &report.Report{}}
	defer c.report.Sort()
	r := &reader{checker: c, fsys: fsys, dir: "."}
	for _, name := range names {
		r.read(name, report.Pos{}, false)
	}
	if r.tree == nil {
		if len(c.report.Problems) == 0 {
			c.report.Add(report.Problem{Severity: report.Error, Rule: "form", Message: "nothing but nodes was given", Hint: formHint})
		}
		return nil, c.report
	}
	s := r.build()
	if c.report.Err() != nil {
		return nil, c.report
	}
	return s, c.report
}

var fleetName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// build makes a site of the merged tree.
func (r *reader) build() *Site {
	s := &Site{dir: r.dir, byName: map[string]int{}}
	if r.site {
		r.decode(r.tree, &s.doc)
	} else {
		var v valuesDoc
		r.decode(r.tree, &v)
		s.doc = document{Metadata: metadataDoc{Name: Text{S: "default"}}, Conf: v.Conf, Manifests: v.Manifests, Labels: v.Labels}
	}
	if n := s.doc.Metadata.Name; n.Set() && !fleetName.MatchString(n.S) {
		r.within([]string{"metadata", "name"}, func() {
			r.errorf(n.At, "name", "lower-case letters, digits and hyphens", "%q cannot be a fleet's name", n.S)
		})
	}
	r.in("trust", func() { s.trust = checkTrust(r.checker, s.doc.Trust, r.dir) })
	layer := r.tree.Get("layer") != nil
	if layer {
		r.in("layer", func() { s.checkLayer(r.checker) })
	}
	if len(s.doc.Health) > 0 {
		r.in("health", func() { r.notef(s.doc.Health[0].v.At, "gates", "", "gates are read but not compiled") })
	}
	r.in("nodes", func() { s.nodes = checkNodes(r.checker, r.nodes) })
	for i, n := range s.nodes {
		s.byName[n.Name] = i
	}
	s.makeParts(r)
	s.checkTargets(&confChecker{checker: r.checker, layer: layer, kept: s.kept})
	return s
}

// makeParts takes the modules' values and overrides apart.
func (s *Site) makeParts(r *reader) {
	var conf confDoc
	r.in("conf", func() { r.decode(s.doc.Conf.v, &conf) })
	var over overridesDoc
	if o := conf.Overrides.v; o != nil {
		r.within([]string{"conf", "overrides"}, func() { r.decode(o, &over) })
	}
	stanzas := map[string]stanzaDoc[modulesDoc]{"apparmor": over.AppArmor, "apt": over.Apt, "ethtool": over.Ethtool, "exec": over.Exec, "limits": over.Limits,
		"mounts": over.Mounts, "perm": over.Perm, "sysctl": over.Sysctl, "uamlite": over.Uamlite}
	for i := range modules {
		m := &modules[i]
		p := &part{module: m, hosts: map[string]*target{}, def: &target{name: "default"}}
		s.parts = append(s.parts, p)
		if m.name == machineModule {
			r.in(machineModule, func() { s.machinePart(r, p) })
			continue
		}
		p.base = s.doc.Conf.v.Get(m.name)
		p.off = s.doc.Manifests.off(m.name)
		if p.off && p.base != nil {
			r.in("manifests", func() {
				r.in("daemonset_"+m.name, func() {
					r.notef(p.base.At, "off", "", "%s is off: nothing of it is applied, and what an earlier overlay set is put back", m.name)
				})
			})
		}
		for _, l := range s.doc.Labels {
			if l.Key.S == m.name && (l.Val.Key.S != "kubernetes.io/os" || l.Val.Value.S != "linux") {
				p.selector = [2]string{l.Val.Key.S, l.Val.Value.S}
			}
		}
		r.in("conf", func() {
			r.in("overrides", func() { r.in(m.stanza, func() { addStanza(p, r.checker, stanzas[m.name]) }) })
		})
	}
}

// machinePart reads machine: its base is laid over the site's network.
func (s *Site) machinePart(r *reader, p *part) {
	base := &tree.Value{Kind: tree.Mapping}
	if n := r.tree.Get("network"); n != nil && n.Kind == tree.Mapping {
		base.Fields = append(base.Fields, tree.Field{Key: "network", At: n.At, Val: n})
	}
	v := s.doc.Machine.v
	if v != nil && r.want(v, tree.Mapping) {
		v = r.readCAs(v)
		base = tree.MergeOverride(base, v.Without("overrides"), func(*tree.Value) {})
	}
	p.base = base
	over := v.Get("overrides")
	if over == nil {
		return
	}
	var st stanzaDoc[machineValues]
	r.in("overrides", func() {
		r.decode(over, &st)
		for i := range st.Hosts {
			if b := st.Hosts[i].Conf.v; b != nil {
				st.Hosts[i].Conf.v = r.readCAs(b)
			}
		}
		for i := range st.Labels {
			if b := st.Labels[i].Conf.v; b != nil {
				st.Labels[i].Conf.v = r.readCAs(b)
			}
		}
		addStanza(p, r.checker, st)
	})
}
