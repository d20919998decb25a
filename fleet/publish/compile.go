// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"fmt"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec/site"
)

// Compile returns the nodes of a site, each with the layer that it is to run: of
// those that the reference leads to, verified as [Publisher.Layers] does, the one
// of its variant. Current layers that were built from another recipe than the
// site has now are an error; named ones are taken, and Say tells.
func (p *Publisher) Compile(ctx context.Context, s *site.Site, policy published.Policy, reference string) ([]Node, error) {
	layers := map[string]*release.Layer{} // by node
	if s.HasLayer() {
		found, err := p.Layers(ctx, policy, reference)
		if err != nil {
			return nil, err
		}
		variants, err := s.Variants()
		if err != nil {
			return nil, err
		}
		for _, v := range variants {
			l, err := release.ForVariant(found, site.RecipeID(v.Recipe), v.Name)
			if err != nil {
				return nil, err
			}
			if digest.Hex(l.Recipe) != site.RecipeID(v.Recipe) {
				if reference == release.Current {
					return nil, cli.WithHint(fmt.Errorf("layer %s (variant %s) was built from another recipe than the site has now", l.Digest, v.Name),
						"run 'caisson build' first; --layer "+l.Digest+" publishes this one all the same")
				}
				p.Say("layer %s (variant %s) was built from another recipe than the site has now", l.Digest, v.Name)
			}
			for _, node := range v.Nodes {
				layers[node] = &l
				if err := fits(s, node, l); err != nil {
					return nil, err
				}
			}
		}
	}
	nodes := make([]Node, 0, len(s.Nodes()))
	none := &release.Layer{}
	for _, n := range s.Nodes() {
		name, l := n.Name, cmp.Or(layers[n.Name], none)
		nodes = append(nodes, Node{Name: name, Match: n.Match, Layer: l.Digest, Knows: l.Features,
			Doc: func() ([]byte, error) { return s.Compile(name, l.Digest, l.Variant) }})
	}
	return nodes, nil
}

// fits wants a layer to have what a node's services take for granted, before anything of
// any node is signed.
func fits(s *site.Site, node string, l release.Layer) error {
	if len(s.Services().List) == 0 {
		return nil
	}
	o, err := s.Overlay(node, l.Digest)
	if err != nil {
		return err
	}
	if err := l.Suits(o); err != nil {
		return fmt.Errorf("layer %s (variant %s): %w", l.Digest, l.Variant, err)
	}
	return nil
}
