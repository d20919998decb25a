// SPDX-License-Identifier: Apache-2.0

// Package layer says of what the system layers of a site's nodes are made, and what they keep:
// their base, kernel and architecture, the state disk, the paths that outlive a boot.
//
// What conf bakes into a layer is known to the modules, and which nodes share one to package site.
package layer

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// LayerDoc is the site's layer, as it is written.
type LayerDoc struct {
	Base    spec.Base    `site:"base,required" doc:"source of the first files"`
	Kernel  kernelDoc    `site:"kernel"`
	Arch    shape.Text   `site:"arch" enum:"amd64,arm64" doc:"architecture; amd64 when absent"`
	Persist []string     `site:"persist" doc:"directories kept on the state disk"`
	Private []string     `site:"privateKeys" doc:"files that may hold a private key, for every node and all who read the registry"`
	State   stateDiskDoc `site:"stateDisk" doc:"what the loader may do to a state disk; the loader then has mke2fs and e2fsck"`
	At      report.Pos
	V       *tree.Value
}

type stateDiskDoc struct {
	Create  shape.Flag   `site:"create" doc:"make a state disk of an empty disk where there is none"`
	Repair  shape.Flag   `site:"repair" doc:"have e2fsck repair what it repairs without a question; true when absent and create is true"`
	Boot    shape.Flag   `site:"boot" doc:"keep a loader on the state disk, from which the machine starts"`
	Disks   []shape.Text `site:"disks" doc:"serial numbers or WWNs of disks that may become it; the only empty disk when absent"`
	AtLeast shape.Number `site:"atLeast" doc:"GiB that the disk must have; 2 when absent"`
	At      report.Pos
}

type kernelDoc struct {
	Package shape.Text   `site:"package" doc:"Debian package of the kernel"`
	Args    []shape.Text `site:"args" doc:"every node's kernel arguments"`
	Modules []string     `site:"modules" doc:"modules of the loader: network, storage or names; both groups when absent"`
}

// archLabel is the label by which a node says its architecture, as kubelets do, in Debian's words.
const archLabel = "kubernetes.io/arch"

// Arch returns the architecture of a node's layer: what the label of the node says, else the site's layer.
func (l *Layer) Arch(n inventory.Node) string {
	return cmp.Or(n.Labels[archLabel], l.Doc.Arch.S, spec.Arches[0])
}

// Kernel returns the package of a node's kernel. Debian's names end with the architecture, so that of
// another one is known: linux-image-cloud-arm64 for linux-image-cloud-amd64.
func (l *Layer) Kernel(n inventory.Node) string {
	arch, name := l.Arch(n), l.Doc.Kernel.Package.S
	if name == "" {
		return "linux-image-" + arch
	}
	if stem, ok := strings.CutSuffix(name, "-"+l.Arch(inventory.Node{})); ok {
		return stem + "-" + arch
	}
	return name
}

// CheckNodes refuses what no layer of a node's architecture could be made of, before one is built or a
// node is given one that it cannot start. Of a kernel without drivers for a node it warns.
func (l *Layer) CheckNodes(c *shape.Checker, nodes []inventory.Node) {
	l.warnOfKernel(c, nodes)
	if l.At() == (report.Pos{}) {
		return
	}
	own := l.Arch(inventory.Node{})
	for _, n := range slices.Concat([]inventory.Node{{}}, nodes) {
		arch, at := l.Arch(n), cmp.Or(n.At(), l.Doc.Kernel.Package.At)
		if !slices.Contains(spec.Arches, arch) {
			c.Errorf(at, "arch", "layers are for "+strings.Join(spec.Arches, " and "), "node %s has the label %s: %s", n.Name, archLabel, arch)
			continue
		}
		if i := slices.IndexFunc(spec.Arches, func(a string) bool { return a != arch && strings.HasSuffix(l.Kernel(n), "-"+a) }); i >= 0 {
			c.Errorf(l.Doc.Kernel.Package.At, "arch", "layer.arch says what layers are for, the label "+archLabel+" what one node is",
				"%s is a kernel for %s, the layer%s for %s", l.Kernel(n), spec.Arches[i], of(n), arch)
			return
		}
		if c.Has(l.Doc.V, "base", "tar") && arch != own {
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
	Doc     LayerDoc           // without a place where the site bakes none
	Args    []string           // layer.kernel.args
	Kept    []string           // layer.persist
	NewDisk *spec.NewStateDisk // nil: the loaders make none
}

// At is where the layer was written; nowhere when it was not.
func (l *Layer) At() report.Pos { return l.Doc.At }

// PrivateKeys returns the files of the layer that may hold a private key.
func (l *Layer) PrivateKeys() []string { return l.Doc.Private }

// Check checks what was written, and keeps what it comes to.
func (l *Layer) Check(c *shape.Checker) {
	base := l.Doc.V.Get("base")
	c.Refuse(rules.Given(l.Doc.Base.Debian != nil, c.Has(base, "oci"), c.Has(base, "tar")) != 1, cmp.Or(c.At(base), l.Doc.At), "base", "",
		"base needs exactly one of debian, oci, tar")
	if d := l.Doc.Base.Debian; d != nil {
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
	if at := c.At(base, "oci"); at != (report.Pos{}) && !ociDigest.MatchString(l.Doc.Base.OCI) {
		c.Errorf(at, "digest", "a tag can change what it names", "%q has no digest: write REF@sha256:…", l.Doc.Base.OCI)
	}
	if p := l.Doc.Kernel.Package; p.Set() {
		c.Valid(p.At, rules.Package(p.S))
	}
	c.In("kernel", func() { c.In("args", func() { l.Args = machine.KernelArgs(c, l.Doc.Kernel.Args) }) })
	c.In("stateDisk", func() { l.NewDisk = checkStateDisk(c, l.Doc.State.Create, l.Doc.State.AtLeast, l.Doc.State.Disks) })
	c.In("privateKeys", func() {
		for i, name := range l.Doc.Private {
			c.Valid(c.Nth(l.Doc.V.Get("privateKeys"), i), rules.Path(name))
		}
	})
	c.In("persist", func() { l.Kept = keptPaths(c, l.Doc.V.Get("persist"), l.Doc.Persist) })
}

// warnOfKernel says when the kernel has no drivers for what the nodes are.
func (l *Layer) warnOfKernel(c *shape.Checker, nodes []inventory.Node) {
	p := l.Doc.Kernel.Package
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
