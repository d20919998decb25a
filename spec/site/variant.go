// SPDX-License-Identifier: Apache-2.0

package site

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
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
	r := spec.Recipe{Fleet: s.Name(), Arch: s.layer.Arch(n), Kernel: s.layer.Kernel(n), Base: l.Base, Modules: l.Kernel.Modules,
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
