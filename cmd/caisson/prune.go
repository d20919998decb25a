// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// pruned is what prune -o json prints.
type pruned struct {
	Removed bool          `json:"removed"` // false with --dry-run
	Freed   int64         `json:"freed"`   // bytes, of a layout
	Layers  []prunedLayer `json:"layers"`
}

type prunedLayer struct {
	Digest  string `json:"digest"`
	Version string `json:"version"`
	Variant string `json:"variant"`
	Keep    string `json:"keep,omitempty"` // why it stays
}

func (a *app) pruneCommand() *cobra.Command {
	var reach access
	var keep int
	var dry bool
	c := &cobra.Command{
		Use:   "prune REF",
		Short: "Remove layers that no node needs",
		Long: "Remove layers that no node needs: all but the newest --keep versions, the current one, and\n" +
			"those that a published overlay names. A registry server frees the space when it collects garbage;\n" +
			"in a layout, blobs that nothing leads to go once they are an hour old.",
		Example: "  caisson prune oci:out --keep 5 --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if keep < 1 {
				return cli.Usage("at least 1", "--keep %d", keep)
			}
			reg, err := reach.existing(args[0])
			if err != nil {
				return err
			}
			return a.prune(c.Context(), reg, keep, dry)
		},
	}
	c.Flags().IntVar(&keep, "keep", 3, "newest versions that stay in any case")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "only say what would go")
	reach.flags(c.Flags())
	return c
}

// stock is what a registry's layer repository holds.
type stock struct {
	versions map[string][]string   // version tag → manifests
	indexes  map[string]string     // version tag → digest of the index
	layers   map[string]spec.Layer // manifest → description
}

func (a *app) prune(ctx context.Context, reg *registry.Registry, keep int, dry bool) error {
	s, err := readStock(ctx, reg)
	if err != nil {
		return err
	}
	live, err := liveLayers(ctx, reg)
	if err != nil {
		return err
	}
	why := s.keep(live, keep)
	out := pruned{Removed: !dry, Layers: []prunedLayer{}}
	for digest, l := range s.layers {
		out.Layers = append(out.Layers, prunedLayer{Digest: digest, Version: l.Version, Variant: l.Variant, Keep: why[digest]})
	}
	sort.Slice(out.Layers, func(i, j int) bool {
		a, b := out.Layers[i], out.Layers[j]
		return a.Version+a.Variant+a.Digest < b.Version+b.Variant+b.Digest
	})
	if !dry {
		if err := s.remove(ctx, reg, why); err != nil {
			return err
		}
		if ref := reg.Ref(); ref.IsLayout() {
			if out.Freed, err = sweep(ref.Layout, sweepGrace); err != nil {
				return err
			}
		}
	}
	if a.json() {
		return cli.JSON(a.out, out)
	}
	gone := 0
	for _, l := range out.Layers {
		verdict := "keep: " + l.Keep
		if l.Keep == "" {
			verdict = "remove"
			gone++
		}
		fmt.Fprintf(a.out, "%s  %s %s  %s\n", l.Digest, l.Version, l.Variant, verdict)
	}
	if dry {
		a.say("would remove %s", count(gone, "layer"))
	} else {
		a.say("removed %s, freed %s", count(gone, "layer"), signless(out.Freed))
	}
	return nil
}

// readStock reads all tags and the descriptions of all layers.
func readStock(ctx context.Context, reg *registry.Registry) (*stock, error) {
	s := &stock{versions: map[string][]string{}, indexes: map[string]string{}, layers: map[string]spec.Layer{}}
	tags, err := reg.Tags(ctx, oci.RepoLayer)
	if errors.Is(err, oci.ErrNotFound) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the layers: %w", err)
	}
	for _, tag := range tags {
		if strings.HasPrefix(tag, "sha256-") {
			continue // a list of referrers
		}
		raw, _, err := reg.Manifest(ctx, oci.RepoLayer, tag)
		if err != nil {
			return nil, fmt.Errorf("layer:%s: %w", tag, err)
		}
		digests := []string{oci.Digest(raw)}
		if index, err := oci.ParseIndex(raw); err == nil {
			digests = nil
			for _, d := range index.Manifests {
				digests = append(digests, d.Digest)
			}
			s.indexes[tag] = oci.Digest(raw)
			s.versions[tag] = digests
		}
		for _, digest := range digests {
			if _, known := s.layers[digest]; known {
				continue
			}
			l, _, err := readLayer(ctx, reg, digest)
			if err != nil {
				return nil, fmt.Errorf("layer:%s: %w", tag, err)
			}
			s.layers[digest] = l
		}
	}
	return s, nil
}

// liveLayers lists the layers that published overlays name, with one node each.
// An overlay that cannot be read stops everything: it might name any layer.
func liveLayers(ctx context.Context, reg *registry.Registry) (map[string]string, error) {
	tags, err := reg.Tags(ctx, oci.RepoNode)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	live := map[string]string{}
	for _, tag := range tags {
		if strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") {
			continue // another name of a node that has its own tag
		}
		resp, err := reg.Source().Manifest(ctx, oci.RepoNode, tag, "")
		if err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		data, _, err := oci.ReadOverlay(ctx, reg.Source(), oci.RepoNode, resp)
		if err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		var o spec.Overlay
		if err := spec.Decode(data, &o); err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		if live[o.Layer] == "" {
			live[o.Layer] = o.Node
		}
	}
	return live, nil
}

// keep says why each layer that stays does.
func (s *stock) keep(live map[string]string, n int) map[string]string {
	why := map[string]string{}
	for digest, node := range live {
		why[digest] = "node " + node
	}
	for _, digest := range s.versions["current"] {
		why[digest] = "current"
	}
	var versions []string
	for tag := range s.versions {
		if tag != "current" {
			versions = append(versions, tag)
		}
	}
	sort.Slice(versions, func(i, j int) bool {
		a, b := s.created(versions[i]), s.created(versions[j])
		if a != b {
			return a > b
		}
		return versions[i] > versions[j]
	})
	for _, tag := range versions[:min(n, len(versions))] {
		for _, digest := range s.versions[tag] {
			if why[digest] == "" {
				why[digest] = "newest " + tag
			}
		}
	}
	return why
}

func (s *stock) created(tag string) (newest string) {
	for _, digest := range s.versions[tag] {
		newest = max(newest, s.layers[digest].Created)
	}
	return newest
}

// remove deletes what stays for no reason: tags first, so that nothing ever
// points at a layer that is half gone.
func (s *stock) remove(ctx context.Context, reg *registry.Registry, why map[string]string) error {
	gone := func(digest string) bool { return why[digest] == "" }
	for tag, digests := range s.versions {
		if !slices.ContainsFunc(digests, func(d string) bool { return !gone(d) }) {
			if err := reg.Delete(ctx, oci.RepoLayer, tag); err != nil && !errors.Is(err, oci.ErrNotFound) {
				return fmt.Errorf("remove layer:%s: %w", tag, err)
			}
		}
	}
	for digest := range s.layers {
		if !gone(digest) {
			continue
		}
		attached, err := reg.Referrers(ctx, oci.RepoLayer, digest)
		if err != nil {
			return fmt.Errorf("what is attached to layer %s: %w", digest, err)
		}
		for _, d := range attached {
			if err := reg.Delete(ctx, oci.RepoLayer, d.Digest); err != nil && !errors.Is(err, oci.ErrNotFound) {
				return fmt.Errorf("remove what is attached to layer %s: %w", digest, err)
			}
		}
		if err := reg.Delete(ctx, oci.RepoLayer, digest); err != nil && !errors.Is(err, oci.ErrNotFound) {
			return fmt.Errorf("remove layer %s: %w", digest, err)
		}
	}
	return nil
}
