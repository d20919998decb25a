// SPDX-License-Identifier: Apache-2.0

package site

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
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
func Parse(fsys fs.FS, names ...string) (*Site, *Report) {
	c := &checker{report: &Report{}}
	defer c.report.sort()
	r := &reader{checker: c, fsys: fsys, dir: "."}
	for _, name := range names {
		r.read(name, pos{}, false)
	}
	if r.tree == nil {
		if len(c.report.Problems) == 0 {
			c.report.add(Problem{Severity: Error, Rule: "form", Message: "nothing but nodes was given", Hint: formHint})
		}
		return nil, c.report
	}
	s := r.build()
	if c.report.Err() != nil {
		return nil, c.report
	}
	return s, c.report
}

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
	r.in("trust", func() { s.trust = r.trust(s.doc.Trust, r.dir) })
	r.checker.layer = r.tree.get("layer") != nil
	if r.checker.layer {
		r.in("layer", func() { s.checkLayer(r.checker) })
	}
	if len(s.doc.Health) > 0 {
		r.in("health", func() { r.notef(s.doc.Health[0].v.at, "gates", "", "gates are read but not compiled") })
	}
	r.in("nodes", func() { s.nodes = r.checkNodes(r.nodes) })
	for i, n := range s.nodes {
		s.byName[n.Name] = i
	}
	s.makeParts(r)
	s.checkTargets(r.checker)
	return s
}

var (
	fleetName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	snapshotText = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z$`)
	ociDigest    = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)
)

func (s *Site) checkLayer(c *checker) {
	l := s.doc.Layer
	n := 0
	for _, given := range []bool{l.Base.Debian != nil, l.Base.OCI.Set(), l.Base.Tar.Set()} {
		if given {
			n++
		}
	}
	if n != 1 {
		c.errorf(orPos(l.Base.At, l.At), "base", "", "base needs exactly one of debian, oci, tar")
	}
	if d := l.Base.Debian; d != nil {
		if d.Suite.Set() && !wordText.MatchString(d.Suite.S) {
			c.errorf(d.Suite.At, "text", "", "%q is not the name of a suite", d.Suite.S)
		}
		if d.Snapshot.Set() && !snapshotText.MatchString(d.Snapshot.S) {
			c.errorf(d.Snapshot.At, "snapshot", "as in 20260101T000000Z", "%q is not the time of a snapshot", d.Snapshot.S)
		}
		if d.Security.Set() && !d.Mirror.Set() {
			c.errorf(d.Security.At, "contradiction", "give mirror too", "security without mirror")
		}
		for _, t := range d.Components {
			if !wordText.MatchString(t.S) {
				c.errorf(t.At, "text", "", "%q is not the name of a component", t.S)
			}
		}
	}
	if l.Base.OCI.Set() && !ociDigest.MatchString(l.Base.OCI.S) {
		c.errorf(l.Base.OCI.At, "digest", "a tag can change what it names", "%q has no digest: write REF@sha256:…", l.Base.OCI.S)
	}
	if p := l.Kernel.Package; p.Set() && !packageText.MatchString(p.S) {
		c.errorf(p.At, "package-name", "", "%q is not the name of a package", p.S)
	}
	c.in("kernel", func() { c.in("args", func() { s.args = c.kernelArgs(l.Kernel.Args) }) })
	c.in("persist", func() { s.kept = c.persist(l.Persist) })
	c.kept = s.kept
}

func (c *checker) persist(paths []Text) []string {
	var out []string
	for _, t := range paths {
		clean := path.Clean(t.S)
		switch {
		case !path.IsAbs(t.S) || slices.Contains(strings.Split(t.S, "/"), "..") || strings.ContainsAny(t.S, "\n\r"):
			c.errorf(t.At, "path", "", "%q is not an absolute path without ..", t.S)
		case slices.Contains(systemDirs, clean) && clean != "/var" || strings.HasPrefix(clean, "/usr/") || strings.HasPrefix(clean, "/run/") || strings.HasPrefix(clean, "/var/lib/caisson/"):
			c.errorf(t.At, "dangerous", "name folders below it", "%s belongs to the layer or to the running system and cannot be kept", clean)
		case clean == "/var":
			c.errorf(t.At, "dangerous", "name folders below it, such as /var/log", "/var holds parts of the layer, such as dpkg's state")
		case slices.Contains(out, clean):
			c.warnf(t.At, "duplicate", "", "%s is given twice", clean)
		default:
			out = append(out, clean)
		}
	}
	slices.Sort(out)
	return out
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
		p.base = s.doc.Conf.v.get(m.name)
		p.off = s.doc.Manifests.off(m.name)
		if p.off && p.base != nil {
			r.in("manifests", func() {
				r.in("daemonset_"+m.name, func() {
					r.notef(p.base.at, "off", "", "%s is off: nothing of it is applied, and what an earlier overlay set is put back", m.name)
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
	base := &value{kind: mapping}
	if n := r.tree.get("network"); n != nil && n.kind == mapping {
		base.fields = append(base.fields, field{"network", n.at, n})
	}
	v := s.doc.Machine.v
	if v != nil && r.want(v, mapping) {
		v = r.readCAs(v)
		base = mergeOverride(base, v.without("overrides"), func(*value) {})
	}
	p.base = base
	over := v.get("overrides")
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

// checkTargets merges, checks and compiles every target of every module.
func (s *Site) checkTargets(c *checker) {
	for _, p := range s.parts {
		c.within(p.where(), func() {
			p.def.frag = p.compileTarget(c, p.def)
			for _, t := range p.labels {
				t.frag = p.compileTarget(c, t)
			}
		})
		unknown := 0
		for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
			t := p.hosts[name]
			c.within(p.where(), func() { p.compileTarget(c, t) })
			if _, ok := s.byName[name]; !ok && len(s.nodes) > 0 {
				hint := ""
				if unknown++; unknown <= 20 { // a suggestion looks at every node
					hint = didYouMeanNode(name, s.nodes)
				}
				c.within(p.where(), func() {
					c.warnf(t.at, "unknown-node", hint, "the entry for host %q has no effect: no node has this name", name)
				})
			}
		}
		s.unusedLabels(c, p)
	}
}

func (p *part) where() []string {
	if p.name == machineModule {
		return []string{machineModule}
	}
	return []string{"conf", p.name}
}

// compileTarget compiles a module for one target, and reports what is wrong with it.
func (p *part) compileTarget(c *checker, t *target) *fragment {
	f := &fragment{}
	if t == offTarget {
		return f
	}
	v := p.effective(t, func(over *value) {
		c.warnf(over.at, "dead-override", "give the same kind of value as the base", "a map cannot replace a value or a list: the base stays")
	})
	p.compile(c, v, f)
	return f
}

// unusedLabels says which label entries no node of the inventory has.
func (s *Site) unusedLabels(c *checker, p *part) {
	if len(s.nodes) == 0 {
		return
	}
	for _, t := range p.labels {
		if !slices.ContainsFunc(s.nodes, func(n Node) bool {
			v, ok := n.label(t.label)
			return ok && slices.Contains(t.values, v)
		}) {
			c.within(p.where(), func() {
				c.notef(t.at, "unused-label", "", "no node has label %s=%s", t.label, strings.Join(t.values, "|"))
			})
		}
	}
}

// label is a node's label, or what every node has without being told.
func (n Node) label(key string) (string, bool) {
	v, ok := n.Labels[key]
	switch {
	case ok:
	case key == hostnameLabel:
		return n.Name, true
	case key == "kubernetes.io/os":
		return "linux", true
	}
	return v, ok
}

func didYouMeanNode(name string, nodes []Node) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), 2000)] {
		names = append(names, n.Name)
	}
	if hint := didYouMean(name, names); strings.HasPrefix(hint, "did you mean") {
		return hint
	}
	return "names are compared byte for byte with the node's name or its label " + hostnameLabel
}
