// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// archLabel is the label by which a node says its architecture, as kubelets do.
const archLabel = "kubernetes.io/arch"

// arches are the architectures that layers are built for, by Debian's names, which are Kubernetes' too.
var arches = []string{"amd64", "arm64"}

// ArchOf returns the architecture of a node, that of the site's layer for a name that is not a node's.
func (s *Site) ArchOf(node string) string {
	if i, ok := s.byName[node]; ok {
		return s.archOf(s.nodes[i])
	}
	return s.archOf(inventory.Node{})
}

// archOf returns what the label of a node says, else the site's layer.
func (s *Site) archOf(n inventory.Node) string {
	return cmp.Or(n.Labels[archLabel], s.doc.Layer.Arch.S, arches[0])
}

// kernelOf returns the package of a node's kernel. Debian's names end with the architecture, so that of
// another one is known: linux-image-cloud-arm64 for linux-image-cloud-amd64.
func (s *Site) kernelOf(n inventory.Node) string {
	arch, name := s.archOf(n), s.doc.Layer.Kernel.Package.S
	if name == "" {
		return "linux-image-" + arch
	}
	if stem, ok := strings.CutSuffix(name, "-"+s.archOf(inventory.Node{})); ok {
		return stem + "-" + arch
	}
	return name
}

// checkArches refuses what no layer of a node's architecture could be made of, before one is built or a
// node is given one that it cannot start.
func (s *Site) checkArches(c *shape.Checker) {
	if !s.HasLayer() {
		return
	}
	l, own := s.doc.Layer, s.archOf(inventory.Node{})
	for _, n := range slices.Concat([]inventory.Node{{}}, s.nodes) {
		arch, at := s.archOf(n), cmp.Or(n.At(), l.Kernel.Package.At)
		if !slices.Contains(arches, arch) {
			c.Errorf(at, "arch", "layers are for "+strings.Join(arches, " and "), "node %s has the label %s: %s", n.Name, archLabel, arch)
			continue
		}
		if i := slices.IndexFunc(arches, func(a string) bool { return a != arch && strings.HasSuffix(s.kernelOf(n), "-"+a) }); i >= 0 {
			c.Errorf(l.Kernel.Package.At, "arch", "layer.arch says what layers are for, the label "+archLabel+" what one node is",
				"%s is a kernel for %s, the layer%s for %s", s.kernelOf(n), arches[i], of(n), arch)
			return
		}
		if l.Base.Tar.Set() && arch != own {
			c.Errorf(at, "arch", "a base of Debian, or an image with both architectures, is known for each", "node %s is %s, and layer.base.tar is for %s", n.Name, arch, own)
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
