// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"iter"
	"path"
	"slices"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// Trust holds the keys that nodes trust, how many must sign, and for how long. Key files are named so that the
// fs.FS given to [Parse] opens them.
type Trust struct {
	OnExpired   string // run or hold
	Approval    string // required, signed, or "": what is published from a cluster needs what caisson-kube was told
	Expires     time.Duration
	Threshold   int
	Release     []string
	Operator    []string
	Attestation []string
	Epoch       []string // none: the epoch stays
	Root        []string // none: keys change with boot files
	Rescue      []string // none: nobody is let into a node

	RootThreshold int
	Chain         string // file of the versions of fleet:keys; "" without root keys

	// Beside says that no site document names keys: those beside it count, and where there is
	// a chain, those of its newest version.
	Beside bool

	doc  document.TrustDoc
	site report.Pos // of the site
}

// Roles of keys, as below trust.keys.
const (
	Release     = "release"
	Operator    = "operator"
	Attestation = "attestation"
	Epoch       = "epoch"
	Root        = "root"
	Rescue      = "rescue"
)

// KeyFiles returns the public key files of a role, and whether the site names them: else
// they are those that are taken when it does not, and their place is that of the site.
func (t Trust) KeyFiles(role string) (files []File, named bool) {
	d := t.doc.Keys
	words := map[string]shape.Words{Release: d.Release, Operator: d.Operator, Attestation: d.Attestation, Epoch: d.Epoch,
		Root: d.Root, Rescue: d.Rescue}[role]
	names := map[string][]string{Release: t.Release, Operator: t.Operator, Attestation: t.Attestation, Epoch: t.Epoch,
		Root: t.Root, Rescue: t.Rescue}[role]
	for i, name := range names {
		f := File{"trust.keys." + role, name, t.site}
		if words.Set() {
			f.At = words.Each[i]
		}
		files = append(files, f)
	}
	return files, words.Set()
}

// chainFile is the name of [Trust.Chain], beside the site.
const chainFile = "caisson.keys"

const day = 24 * time.Hour

// checkTrust reads who is trusted. beside returns the files with keys of a role that count where
// the documents name none, for what is read from a cluster.
func checkTrust(c *shape.Checker, d document.TrustDoc, dir string, beside func(role string) []string) Trust {
	t := Trust{OnExpired: cmp.Or(d.OnExpired.S, "run"), Approval: d.Approval.S, Expires: 30 * day, Threshold: 1, RootThreshold: 1, doc: d}
	if d.Expires.Set() {
		t.Expires = d.Expires.D
		c.Refuse(t.Expires < time.Hour || t.Expires > 3650*day, d.Expires.At, "range", "", "an overlay is fresh between an hour and ten years")
	}
	for _, w := range []shape.Words{d.Keys.Operator, d.Keys.Release, d.Keys.Attestation, d.Keys.Epoch, d.Keys.Root, d.Keys.Rescue} {
		if w.Set() { // a document names keys: it names all of them
			beside = func(string) []string { return nil }
		}
	}
	keys := func(w shape.Words, name string) []string {
		if !w.Set() {
			if found := beside(name); len(found) > 0 {
				return found
			}
			return []string{path.Join(dir, "keys", name+".pub")}
		}
		var out []string
		for i, f := range w.List {
			out = append(out, document.Beside(w.Each[i], f))
		}
		return out
	}
	t.Release, t.Operator, t.Attestation = keys(d.Keys.Release, "release"), keys(d.Keys.Operator, "operator"),
		keys(d.Keys.Attestation, "attestation")
	perhaps := func(w shape.Words, name string) []string {
		if !w.Set() {
			return beside(name)
		}
		return keys(w, name)
	}
	t.Epoch, t.Rescue, t.Root = perhaps(d.Keys.Epoch, "epoch"), perhaps(d.Keys.Rescue, "rescue"), perhaps(d.Keys.Root, "root")
	if len(t.Root) > 0 {
		t.Chain, t.Beside = path.Join(dir, chainFile), !d.Keys.Root.Set()
	}
	if d.Keys.Rescue.Set() && !d.Keys.Root.Set() {
		c.Errorf(d.Keys.Rescue.Each[0], "key", "'caisson keys generate keys/root' makes a root key; name it in trust.keys.root",
			"rescue keys count by the chain of keys, and the site names no root key")
	}
	if d.Root.Set() {
		t.RootThreshold = int(d.Root.N)
		c.Refuse(d.Root.N < 1 || d.Root.N > int64(len(t.Root)), d.Root.At, "range", "list more files in trust.keys.root",
			"a threshold of %d with %d root keys", d.Root.N, len(t.Root))
	}
	if d.Threshold.Set() {
		t.Threshold = int(d.Threshold.N)
		c.Refuse(d.Threshold.N < 1 || d.Threshold.N > int64(len(t.Operator)), d.Threshold.At, "range", "list more files in trust.keys.operator",
			"a threshold of %d with %d operator keys", d.Threshold.N, len(t.Operator))
	}
	return t
}

// Bootstrap returns what the loaders of the site's nodes read, as far as it follows from the
// site's text alone: it has no keys, and its registry is the site's own, "" where there is none.
//
// Its kernel arguments are those of all nodes: a node that needs others has to start its kernel
// a second time. Hints is the URL of all nodes that send reports, "" where they have several.
func (s *Site) Bootstrap() spec.Bootstrap {
	b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: s.Name(), Registry: s.Registry(),
		NewStateDisk: s.layer.NewDisk, BootFromDisk: s.layer.Doc.State.Boot.On, Network: s.bootNetwork}
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
	b.KernelArgs = slices.Concat(s.layer.Args, common)
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
