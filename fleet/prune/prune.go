// SPDX-License-Identifier: Apache-2.0

// Package prune removes what no node of a fleet needs any more: earlier generations, layers, images
// of services and loaders.
//
// It verifies no signature of what it reads, which only ever adds to what stays. Whose turn it is
// to change the fleet it is told. Only cmd/caisson imports it.
package prune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Keep says what [Run] leaves beside what nodes need.
type Keep struct {
	Versions    int // of layers, by when they were released
	Generations int // of the fleet, with all that they need
}

// Pruned is the result of [Run], as prune -o json prints it.
type Pruned struct {
	release.Pruned
	Generations []PrunedGeneration `json:"generations"` // the newest first
	Services    []PrunedService    `json:"services"`    // images of services
}

// PrunedGeneration is the verdict on one generation.
type PrunedGeneration struct {
	published.Generation
	Keep bool `json:"keep"`
}

// Alone runs f while nobody publishes.
type Alone func(ctx context.Context, f func(context.Context, *published.Reader, *registry.Batch) error) error

// Run removes earlier generations of the fleet, and the layers that no node needs,
// see [release.Prune], while nobody publishes. A layer that a node runs, ran before
// or is held at stays, and one that a generation needs that stays. With a policy in
// the reader's Trust what is published is verified first. Without one it says that nothing is;
// nobody is kept out of a registry server then, and generations stay there. A forged
// document can keep a layer, never remove one.
func Run(ctx context.Context, in *published.Reader, alone Alone, keep Keep, dry bool) (out *Pruned, err error) {
	if in.Trust != nil && !dry {
		err = alone(ctx, func(ctx context.Context, in *published.Reader, batch *registry.Batch) (err error) {
			out, err = prune(ctx, in, batch, keep)
			return err
		})
		return out, err
	}
	if in.Trust == nil {
		in.Say("without site and keys nothing is verified: anyone who can push decides which layers are needed")
	} else if _, err = in.Open(ctx, *in.Trust, published.Purpose{}); err != nil {
		return nil, err
	}
	if dry {
		return prune(ctx, in, nil, keep)
	}
	batch, err := in.Registry.Batch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	return prune(ctx, in, batch, keep)
}

// prune removes nothing without a batch.
func prune(ctx context.Context, in *published.Reader, batch *registry.Batch, keep Keep) (*Pruned, error) {
	out := &Pruned{}
	list, err := in.Generations(ctx)
	if err != nil {
		return nil, err
	}
	locked := in.Trust != nil || in.Registry.Ref().IsLayout()
	if !locked && len(list) > keep.Generations {
		in.Say("generations are kept: give --site or --trust to remove them, which keeps other publishers out")
	}
	n := &needs{in: in, removal: &registry.Removal{From: in.Registry}, roots: map[string]spec.FleetIndex{},
		layers: map[string]string{}, shards: map[string]bool{}, services: map[string]string{},
		overlays: map[string]overlayOf{}, goneBackTo: map[published.Generation]bool{}}
	if err := n.root(ctx, "index", "", true); err != nil && !errors.Is(err, oci.ErrNotFound) {
		return nil, err
	}
	if err := n.nodes(ctx); err != nil {
		return nil, err
	}
	most, remove := keep.Generations, locked && batch != nil
	if !locked {
		most = len(list)
	}
	if out.Generations, err = n.pruneGenerations(ctx, list, most, remove); err != nil {
		return nil, err
	}
	if remove {
		if err := errors.Join(n.removeTags(ctx, oci.RepoNode, "shards", n.isSpareShard),
			n.removeTags(ctx, oci.RepoFleet, "reservations", n.isOverIntent)); err != nil {
			return nil, err
		}
	}
	if out.Services, err = n.pruneServices(ctx, !remove); err != nil {
		return nil, err
	}
	if remove {
		if err := n.pruneLoaders(ctx); err != nil {
			return nil, err
		}
	}
	layers, err := release.Prune(ctx, in.Registry, batch, n.layers, keep.Versions)
	if err != nil {
		return nil, err
	}
	out.Pruned = *layers
	out.Stays = append(append([]string{}, n.removal.Stays...), layers.Stays...) // never null
	out.Removed = batch != nil && len(out.Stays) == 0
	return out, nil
}

// pruneGenerations keeps so many generations that changed what nodes have, and those that a node
// may go back to, with all that they need.
func (n *needs) pruneGenerations(ctx context.Context, list []published.Generation, most int, remove bool) ([]PrunedGeneration, error) {
	out := []PrunedGeneration{}
	for i, g := range list {
		stays := most > 0 || n.goneBackTo[g]
		if stays {
			changed, err := n.isChanged(ctx, list[i:])
			if stays = !errors.Is(err, published.ErrNotKept); stays && err != nil {
				return nil, err
			}
			if changed {
				most--
			}
		}
		out = append(out, PrunedGeneration{g, stays})
		if stays {
			if err := n.root(ctx, g.Tag(), "generation "+g.String(), false); err != nil {
				return nil, err
			}
		} else if remove {
			if err := n.removal.Untag(ctx, oci.RepoFleet, g.Tag()); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// isChanged reports whether the first of some generations, the newest first, has other rows
// than the one before it: steps of a rollout may only tell how far that is. It is published.ErrNotKept
// of one that was removed and whose tag the registry kept.
func (n *needs) isChanged(ctx context.Context, list []published.Generation) (bool, error) {
	var shards [2][]spec.Shard
	for i, g := range list[:min(2, len(list))] {
		root, err := n.rootOf(ctx, g.Tag())
		if refusal.Of(err) == refusal.MediaType { // an earlier prune left its tag, which leads to nothing
			if i > 0 {
				return true, nil
			}
			return false, published.ErrNotKept
		}
		if err != nil {
			return false, err
		}
		shards[i] = root.Shards
	}
	return len(list) < 2 || shards[0] == nil || !slices.Equal(shards[0], shards[1]), nil
}

// rootOf reads the root that a tag leads to, once.
func (n *needs) rootOf(ctx context.Context, tag string) (root spec.FleetIndex, err error) {
	if root, known := n.roots[tag]; known {
		return root, nil
	}
	root, err = published.ReadRoot(ctx, n.in.Registry.Source(), tag)
	if err != nil {
		return root, err
	}
	n.roots[tag] = root
	return root, nil
}

// needs collects what must stay. It verifies no signature: what is read here only
// ever adds to what stays, and who can alter it can remove it.
type needs struct {
	in      *published.Reader
	removal *registry.Removal
	roots   map[string]spec.FleetIndex // that were read, by tag

	layers map[string]string // digest → why it stays
	shards map[string]bool   // their tags

	goneBackTo map[published.Generation]bool // by rollouts that have not ended

	services map[string]string    // digest of an image → why it stays
	overlays map[string]overlayOf // by digest, of generations; their services are looked at later, if at all
}

func (n *needs) layer(digest, why string) {
	if digest != "" && n.layers[digest] == "" {
		n.layers[digest] = why
	}
}

// root adds what a generation needs. Of the present one each node is the reason for
// what it runs, and for what it ran before.
func (n *needs) root(ctx context.Context, tag, why string, present bool) error {
	x, err := n.rootOf(ctx, tag)
	if err != nil {
		return err
	}
	for _, s := range x.Shards {
		n.shards[release.KeepTag(s.Manifest)] = true
	}
	rows, err := n.in.Rows(ctx, x)
	if err != nil {
		return fmt.Errorf("fleet:%s: %w", tag, err)
	}
	n.rows(rows, why, present)
	if !present {
		return nil
	}
	for name, r := range x.Rollouts {
		if r.Ended() {
			continue
		}
		plan, err := published.ReadPlan(ctx, n.in.Registry.Source(), x.Fleet, name, r)
		if err != nil {
			return err
		}
		for _, digest := range plan.Layers {
			n.layer(digest, "rollout "+name)
		}
		n.goneBackTo[published.Generation{Epoch: plan.Before.Epoch, Number: plan.Before.Generation}] = true
	}
	return nil
}

func (n *needs) rows(rows index.Rows, why string, present bool) {
	names := slices.Sorted(maps.Keys(rows))
	for _, name := range names {
		if present {
			why = "node " + name
		}
		n.layer(rows[name].Layer, why)
		n.overlay(rows[name].Overlay, overlayOf{rows[name].Size, why})
	}
	for _, name := range names {
		if before := rows[name].Before; present && before != nil {
			n.layer(before.Layer, "node "+name+" before")
			n.overlay(before.Overlay, overlayOf{before.Size, "node " + name + " before"})
		}
	}
}

// nodes adds the layers that overlays name under the nodes' own tags: a node may
// have left the index, and a publish that was cut may have moved it on. An overlay
// that cannot be read stops everything, since it might name any layer. What is
// another artifact than an overlay names none.
func (n *needs) nodes(ctx context.Context) error {
	tags, err := n.tags(ctx, oci.RepoNode, "nodes")
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") || published.IsShard(tag) {
			continue // another name of a node that has its own tag, or a shard
		}
		if err := n.node(ctx, tag); err != nil {
			return fmt.Errorf("overlay of %s: %w", tag, err)
		}
	}
	return nil
}

func (n *needs) node(ctx context.Context, tag string) error {
	src := n.in.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, tag, "")
	if err != nil {
		return err
	}
	if m, err := oci.ParseManifest(resp.Data); err == nil && m.ArtifactType != oci.TypeOverlay {
		return nil
	}
	data, _, err := oci.ReadOverlay(ctx, src, oci.RepoNode, resp)
	if err != nil {
		return err
	}
	var o spec.Core
	if _, err := spec.DecodeKnown(data, &o); err != nil {
		return err
	}
	n.layer(o.Layer, "node "+o.Node)
	return n.servicesOf(data, "node "+o.Node)
}

// isSpareShard reports whether a tag is that of a shard that no generation needs.
func (n *needs) isSpareShard(tag string) bool { return published.IsShard(tag) && !n.shards[tag] }

// isOverIntent reports whether a tag is a reservation that counts for nobody any more: a registry
// may not have let its publisher remove it.
func (n *needs) isOverIntent(tag string) bool {
	i, ok := reserve.Parse(tag)
	return ok && i.IsOver(n.in.Now)
}

// removeTags removes the tags of a repository that have gone.
func (n *needs) removeTags(ctx context.Context, repo, what string, gone func(tag string) bool) error {
	tags, err := n.tags(ctx, repo, what)
	for _, tag := range tags {
		if gone(tag) {
			if err := n.removal.Untag(ctx, repo, tag); err != nil {
				return err
			}
		}
	}
	return err
}

// tags lists the tags of a repository, none where there is no such repository.
func (n *needs) tags(ctx context.Context, repo, what string) ([]string, error) {
	tags, err := n.in.Registry.Tags(ctx, repo)
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return nil, fmt.Errorf("list the %s: %w", what, err)
	}
	return tags, nil
}

// Write prints for people what is kept and what goes.
func (p *Pruned) Write(w io.Writer) {
	for _, g := range p.Generations {
		verdict := "keep"
		if !g.Keep {
			verdict = "remove"
		}
		cli.Printf(w, "generation %s  %s\n", g.Generation, verdict)
	}
	for _, l := range p.Layers {
		cli.Printf(w, "%s  %s %s  %s\n", l.Digest, l.Version, l.Variant, kept(l.Keep))
	}
	for _, s := range p.Services {
		cli.Printf(w, "service  %s  %s\n", s.Image, kept(s.Keep))
	}
	for _, name := range p.Stays {
		cli.Printf(w, "%s  stays\n", name)
	}
}

// kept is the verdict on what stays for a reason, "" where there is none.
func kept(why string) string {
	if why == "" {
		return "remove"
	}
	return "keep: " + why
}

// Tell says how much goes, or is gone; of what stays against the will of all an error tells.
func (p *Pruned) Tell(say func(format string, args ...any)) {
	old := count(p.Generations, func(g PrunedGeneration) bool { return !g.Keep })
	gone := count(p.Layers, func(l release.PrunedLayer) bool { return l.Keep == "" })
	what := plain.Count(old, "generation") + " and " + plain.Count(gone, "layer")
	if len(p.Services) > 0 {
		what += ", " + plain.Count(count(p.Services, func(s PrunedService) bool { return s.Keep == "" }), "image") + " of services"
	}
	switch {
	case len(p.Stays) > 0:
	case p.Removed:
		say("removed %s, freed %s", what, plain.Bytes(p.Freed))
	default:
		say("would remove %s", what)
	}
}

func count[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}
