// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

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
