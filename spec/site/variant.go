// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
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
	for _, n := range s.nodes {
		key := s.archOf(n)
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
	if len(out[0].Nodes) == 0 && len(s.nodes) > 0 {
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
	r := spec.Recipe{Fleet: s.Name(), Arch: s.archOf(n), Kernel: s.kernelOf(n), Base: l.Base, Modules: l.Kernel.Modules,
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
		if p.Off {
			t = override.OffTarget
		}
		if !byDefault {
			t = p.Choose(n.Name, n.Label)
		}
		f := t.Frag
		if f == nil {
			f = p.CompileTarget(s.quiet(), t)
		}
		f.Bake(&r)
	}
	return r
}

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
		if c.Has(l.V, "base", "tar") && arch != own {
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
