// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// DefaultVariant is the name of the variant that no override changes.
const DefaultVariant = "default"

// Variant is one system layer of the site and the nodes that share it.
type Variant struct {
	Name   string // DefaultVariant, or the beginning of the recipe's hash
	Recipe spec.Recipe
	Nodes  []string
}

// ErrNoLayer is returned by Variants when the site bakes nothing.
var ErrNoLayer = report.Invalidf("add layer: with a base to the Site", "the site has no layer")

// Variants returns the layers that the site's nodes need, shared by content. The
// one that no override changes is called default and stands first.
func (s *Site) Variants() ([]Variant, error) {
	if !s.HasLayer() {
		return nil, ErrNoLayer
	}
	def := s.recipe(inventory.Node{}, true)
	out := []Variant{{Name: DefaultVariant, Recipe: def}}
	byID := map[string]int{RecipeID(def): 0}
	byTargets := map[string]int{} // most nodes have the same few targets
	for _, n := range s.fleet.Nodes {
		key := s.layer.Arch(n)
		for _, p := range s.parts {
			if p.Image {
				key += fmt.Sprintf("%p;", p.Choose(n.Name, n.Label))
			}
		}
		i, known := byTargets[key]
		if !known {
			r := s.recipe(n, false)
			id := RecipeID(r)
			if i, known = byID[id]; !known {
				i = len(out)
				byID[id] = i
				out = append(out, Variant{Name: id[:12], Recipe: r})
			}
			byTargets[key] = i
		}
		out[i].Nodes = append(out[i].Nodes, n.Name)
	}
	if len(out[0].Nodes) == 0 && len(s.fleet.Nodes) > 0 {
		out = out[1:]
	}
	slices.SortStableFunc(out[min(1, len(out)):], func(a, b Variant) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// RecipeID is the recipe's identity: the hash of its one encoding, in hex.
func RecipeID(r spec.Recipe) string {
	data, err := spec.Encode(r)
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// DefaultRecipe returns that of a node no override applies to.
func (s *Site) DefaultRecipe() spec.Recipe { return s.recipe(inventory.Node{}, true) }

// recipe returns the recipe of a node's layer.
func (s *Site) recipe(n inventory.Node, byDefault bool) spec.Recipe {
	l := s.doc.Layer
	r := spec.Recipe{Fleet: s.Name(), Arch: s.layer.Arch(n), Kernel: s.layer.kernel(n), Base: l.Base, Modules: l.Kernel.Modules,
		Programs: l.State.Create.On || l.State.Repair.On}
	if d := l.Base.Debian; d != nil {
		debian := *d
		r.Base.Debian = &debian
		if len(d.Components) == 0 {
			r.Base.Debian.Components = []string{"main"}
		}
	}
	for _, p := range s.parts {
		if !p.Image {
			continue
		}
		t := p.Def
		switch {
		case !byDefault:
			t = p.Choose(n.Name, n.Label)
		case p.Off:
			t = override.OffTarget
		}
		f := t.Frag
		if f == nil {
			f = p.CompileTarget(s.quiet(), t)
		}
		f.Bake(&r)
	}
	return r
}

// archLabel is the label by which a node says its architecture, as kubelets do, in Debian's words.
const archLabel = "kubernetes.io/arch"

// Arch returns the architecture of a node's layer: what the label of the node says, else the site's layer.
func (l *Layer) Arch(n inventory.Node) string {
	return cmp.Or(n.Labels[archLabel], l.doc.Arch.S, spec.Arches[0])
}

// kernel returns the package of a node's kernel. Debian's names end with the architecture, so that of
// another one is known: linux-image-cloud-arm64 for linux-image-cloud-amd64.
func (l *Layer) kernel(n inventory.Node) string {
	arch, name := l.Arch(n), l.doc.Kernel.Package.S
	if name == "" {
		return "linux-image-" + arch
	}
	if stem, ok := strings.CutSuffix(name, "-"+l.Arch(inventory.Node{})); ok {
		return stem + "-" + arch
	}
	return name
}

// checkNodes refuses what no layer of a node's architecture could be made of, before one is built or a
// node is given one that it cannot start. Of a kernel without drivers for a node it warns.
func (l *Layer) checkNodes(c *shape.Checker, nodes []inventory.Node) {
	l.warnOfKernel(c, nodes)
	if l.At() == (report.Pos{}) {
		return
	}
	own := l.Arch(inventory.Node{})
	for _, n := range slices.Concat([]inventory.Node{{}}, nodes) {
		arch, at := l.Arch(n), cmp.Or(n.At(), l.doc.Kernel.Package.At)
		if !slices.Contains(spec.Arches, arch) {
			c.Errorf(at, "arch", "layers are for "+strings.Join(spec.Arches, " and "), "node %s has the label %s: %s", n.Name, archLabel, arch)
			continue
		}
		if i := slices.IndexFunc(spec.Arches, func(a string) bool { return a != arch && strings.HasSuffix(l.kernel(n), "-"+a) }); i >= 0 {
			c.Errorf(l.doc.Kernel.Package.At, "arch", "layer.arch says what layers are for, the label "+archLabel+" what one node is",
				"%s is a kernel for %s, the layer%s for %s", l.kernel(n), spec.Arches[i], of(n), arch)
			return
		}
		if c.Has(l.doc.V, "base", "tar") && arch != own {
			c.Errorf(at, "arch", "a base of Debian, or an image with both architectures, is known for each",
				"node %s is %s, and layer.base.tar is for %s", n.Name, arch, own)
			return
		}
	}
}

// of names the node of a layer, where it is one's.
func of(n inventory.Node) string {
	if n.Name == "" {
		return ""
	}
	return " of node " + n.Name
}

var (
	snapshotText = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z$`)
	ociDigest    = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)
)

// Layer says of what the system layers of a site's nodes are made, and what they keep.
type Layer struct {
	doc     document.LayerDoc // without a place where the site bakes none
	args    []string          // layer.kernel.args
	kept    []string          // layer.persist
	newDisk *spec.NewStateDisk
}

// At is where the layer was written; nowhere when it was not.
func (l *Layer) At() report.Pos { return l.doc.At }

// PrivateKeys returns the files of the layer that may hold a private key.
func (l *Layer) PrivateKeys() []string { return l.doc.Private }

// check checks what was written, and keeps what it comes to.
func (l *Layer) check(c *shape.Checker) {
	base := l.doc.V.Get("base")
	c.Refuse(rules.Given(l.doc.Base.Debian != nil, c.Has(base, "oci"), c.Has(base, "tar")) != 1, cmp.Or(c.At(base), l.doc.At), "base", "",
		"base needs exactly one of debian, oci, tar")
	if d := l.doc.Base.Debian; d != nil {
		v, none := base.Get("debian"), report.Pos{}
		if at := c.At(v, "suite"); at != none {
			c.Valid(at, rules.SourceWord(d.Suite))
		}
		mirror, security := c.At(v, "mirror"), c.At(v, "security")
		if mirror != none {
			c.Valid(mirror, rules.SourceURL(d.Mirror))
		}
		if security != none {
			c.Valid(security, rules.SourceURL(d.Security))
		}
		if at := c.At(v, "snapshot"); at != none && !snapshotText.MatchString(d.Snapshot) {
			c.Errorf(at, "snapshot", "as in 20260101T000000Z", "%q is not the time of a snapshot", d.Snapshot)
		}
		c.Refuse(security != none && mirror == none, security, "contradiction", "give mirror too", "security without mirror")
		for i, t := range d.Components {
			c.Valid(c.Nth(v.Get("components"), i), rules.SourceWord(t))
		}
	}
	if at := c.At(base, "oci"); at != (report.Pos{}) && !ociDigest.MatchString(l.doc.Base.OCI) {
		c.Errorf(at, "digest", "a tag can change what it names", "%q has no digest: write REF@sha256:…", l.doc.Base.OCI)
	}
	if p := l.doc.Kernel.Package; p.Set() {
		c.Valid(p.At, rules.Package(p.S))
	}
	c.In("kernel", func() { c.In("args", func() { l.args = machine.KernelArgs(c, l.doc.Kernel.Args) }) })
	c.In("stateDisk", func() { l.newDisk = checkStateDisk(c, l.doc.State.Create, l.doc.State.AtLeast, l.doc.State.Disks) })
	c.In("privateKeys", func() {
		for i, name := range l.doc.Private {
			c.Valid(c.Nth(l.doc.V.Get("privateKeys"), i), rules.Path(name))
		}
	})
	c.In("persist", func() { l.kept = keptPaths(c, l.doc.V.Get("persist"), l.doc.Persist) })
}

// warnOfKernel says when the kernel has no drivers for what the nodes are.
func (l *Layer) warnOfKernel(c *shape.Checker, nodes []inventory.Node) {
	p := l.doc.Kernel.Package
	if !strings.Contains(p.S, "-cloud-") {
		return
	}
	for _, n := range nodes {
		for _, mac := range n.Match.MACs {
			if inventory.Hardware(mac) {
				c.Warnf(p.At, "cloud-kernel", "name "+strings.Replace(p.S, "-cloud", "", 1)+", the full kernel",
					"node %s has the address %s of a network card, and %s has drivers of virtual machines only", n.Name, mac, p.S)
				return
			}
		}
	}
}

// gib is the unit of layer.stateDisk.atLeast.
const gib = 1 << 30

// checkStateDisk checks layer.stateDisk, and returns what the loaders are asked to make;
// nil for nothing.
func checkStateDisk(c *shape.Checker, create shape.Flag, atLeast shape.Number, disks []shape.Text) *spec.NewStateDisk {
	if !create.On {
		for _, at := range append(plain.Each(disks, func(t shape.Text) report.Pos { return t.At }), atLeast.At) {
			if at != (report.Pos{}) {
				c.Warnf(at, "no-effect", "add create: true", "no state disk is made without layer.stateDisk.create")
				break
			}
		}
		return nil
	}
	out := &spec.NewStateDisk{AtLeast: 2 * gib} // of which the room for a loader is half
	if atLeast.Set() {
		if atLeast.N < 1 || atLeast.N > 1<<20 {
			c.Errorf(atLeast.At, "range", "GiB, as in 100", "%d is not a size from 1 to %d GiB", atLeast.N, 1<<20)
			return nil
		}
		out.AtLeast = atLeast.N * gib
	}
	for _, t := range disks {
		switch {
		case len(t.S) > 128 || !diskName.MatchString(t.S):
			c.Errorf(t.At, "disk", "'lsblk -o NAME,SERIAL,WWN' shows them", "%q is not a serial number or WWN", t.S)
		case slices.Contains(out.Disks, t.S):
			c.Warnf(t.At, "duplicate", "", "%s is given twice", t.S)
		default:
			out.Disks = append(out.Disks, t.S)
		}
	}
	return out
}

// diskName is how disks name themselves: SCSI has blanks in it, NVMe may have dots.
var diskName = regexp.MustCompile(`^[0-9A-Za-z][-0-9A-Za-z._: ]*[0-9A-Za-z]$`)

// keptPaths checks layer.persist.
func keptPaths(c *shape.Checker, v *tree.Value, paths []string) []string {
	var out []string
	for i, name := range paths {
		at, clean := c.Nth(v, i), path.Clean(name)
		switch {
		case !c.Valid(at, rules.AuthoredPath(name)):
		case !c.Valid(at, rules.Persist(clean)):
		case slices.Contains(out, clean):
			c.Warnf(at, "duplicate", "", "%s is given twice", clean)
		default:
			out = append(out, clean)
		}
	}
	slices.Sort(out)
	return out
}
