// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
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
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

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
