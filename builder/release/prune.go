// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Pruned holds the output of prune -o json.
type Pruned struct {
	Removed bool          `json:"removed"` // false with --dry-run, and where something stays
	Freed   int64         `json:"freed"`   // bytes, of a layout
	Layers  []PrunedLayer `json:"layers"`
	Stays   []string      `json:"stays"` // what the registry did not remove
}

// PrunedLayer is the verdict on one layer.
type PrunedLayer struct {
	Digest  string `json:"digest"`
	Version string `json:"version"`
	Variant string `json:"variant"`
	Keep    string `json:"keep,omitempty"` // why it stays; empty when it goes
}

// stock holds the content of a registry's layer repository.
type stock struct {
	versions map[string][]string   // version tag → manifests
	released map[string]string     // version tag → when its index was released, RFC 3339; "" for one that nobody signed
	layers   map[string]spec.Layer // manifest → description
	ledgers  map[string]string     // version tag → manifest of the account ledger
	left     []string              // tags of versions that an earlier prune removed, and the registry kept
}

// Prune removes layers that are not needed: all but the keep versions that were
// released last, the current one, and those in needed (digest → why). The batch is open on r since before needed was
// read, so that nobody publishes meanwhile. Without one nothing is removed.
func Prune(ctx context.Context, r *registry.Registry, batch *registry.Batch, needed map[string]string, keep int) (*Pruned, error) {
	s, err := readStock(ctx, r)
	if err != nil {
		return nil, err
	}
	why := s.keep(needed, keep)
	out := &Pruned{Removed: batch != nil, Layers: []PrunedLayer{}}
	for digest, l := range s.layers {
		out.Layers = append(out.Layers, PrunedLayer{Digest: digest, Version: l.Version, Variant: l.Variant, Keep: why[digest]})
	}
	slices.SortFunc(out.Layers, func(a, b PrunedLayer) int {
		return strings.Compare(a.Version+a.Variant+a.Digest, b.Version+b.Variant+b.Digest)
	})
	if batch == nil {
		return out, nil
	}
	removal := &registry.Removal{From: r}
	if err := s.remove(ctx, removal, why); err != nil {
		return nil, err
	}
	out.Stays = append([]string{}, removal.Stays...)
	if err := batch.Flush(); err != nil {
		return nil, err
	}
	out.Freed, err = batch.Sweep(sweepGrace)
	return out, err
}

// sweepGrace spares blobs that another publisher may just be pushing.
const sweepGrace = time.Hour

// readStock reads all tags and the descriptions of all layers.
func readStock(ctx context.Context, reg *registry.Registry) (*stock, error) {
	s := &stock{versions: map[string][]string{}, released: map[string]string{}, layers: map[string]spec.Layer{}, ledgers: map[string]string{}}
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
		p, err := follow(ctx, reg, tag)
		if err != nil {
			return nil, fmt.Errorf("layer:%s: %w", tag, err)
		}
		if p.index != "" {
			s.versions[tag], s.ledgers[tag] = p.layers, p.ledger
			if s.released[tag], err = releasedAt(ctx, reg, p.index); err != nil {
				return nil, fmt.Errorf("layer:%s: %w", tag, err)
			}
		}
		for _, digest := range p.layers {
			if _, known := s.layers[digest]; known {
				continue
			}
			l, err := Read(ctx, reg, digest)
			if errors.Is(err, oci.ErrNotFound) && p.index != "" {
				continue // a prune before took it, and left the version that it belonged to
			}
			if refusal.Of(err) == refusal.MediaType && isGone(ctx, reg, tag) {
				s.left = append(s.left, tag)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("layer:%s: %w", tag, err)
			}
			s.layers[digest] = l.Layer
		}
	}
	return s, nil
}

// isGone reports whether a tag leads to what [registry.Registry.Untag] puts in its place.
func isGone(ctx context.Context, reg *registry.Registry, tag string) bool {
	m, err := manifest(ctx, reg, tag)
	return err == nil && m.ArtifactType == oci.TypeGone
}

// releasedAt returns when the newest signature was attached to an index. It only
// orders versions: a writer who can alter it can delete them as well.
func releasedAt(ctx context.Context, reg *registry.Registry, index string) (newest string, err error) {
	list, err := reg.Referrers(ctx, oci.RepoLayer, index)
	if err != nil {
		return "", err
	}
	for _, d := range list[:min(len(list), maxReferrers)] {
		// Not every registry copies annotations into its list.
		resp, err := reg.Source().Manifest(ctx, oci.RepoLayer, d.Digest, "")
		if err != nil {
			return "", err
		}
		if m, err := oci.ParseManifest(resp.Data); err == nil { // another kind of attachment has no say
			newest = max(newest, m.Annotations[created])
		}
	}
	return newest, nil
}

// keep says why each layer that stays does.
func (s *stock) keep(needed map[string]string, n int) map[string]string {
	why := map[string]string{}
	maps.Copy(why, needed)
	for _, digest := range s.versions["current"] {
		why[digest] = "current"
	}
	versions := slices.DeleteFunc(slices.Collect(maps.Keys(s.versions)), func(tag string) bool { return tag == "current" })
	slices.SortFunc(versions, func(b, a string) int {
		return slices.Compare([]string{s.released[a], s.created(a), a}, []string{s.released[b], s.created(b), b})
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

// created is the date of a version's packages, equal for all builds of one lock.
func (s *stock) created(tag string) (newest string) {
	for _, digest := range s.versions[tag] {
		newest = max(newest, s.layers[digest].Created)
	}
	return newest
}

// remove deletes what stays for no reason: tags first, so that nothing ever
// points at a layer that is half gone.
func (s *stock) remove(ctx context.Context, reg *registry.Removal, why map[string]string) error {
	gone := func(digest string) bool { return why[digest] == "" }
	ledgers := map[string]bool{} // whether they go
	tags := s.left
	for tag, digests := range s.versions {
		goes := slices.ContainsFunc(digests, gone) // also where a layer of it stays, which later versions have as it was
		others, known := ledgers[s.ledgers[tag]]
		if ledgers[s.ledgers[tag]] = goes && (others || !known); goes {
			tags = append(tags, tag)
		}
	}
	for _, tag := range tags {
		if err := reg.Untag(ctx, oci.RepoLayer, tag); err != nil {
			return fmt.Errorf("remove layer:%s: %w", tag, err)
		}
	}
	for ledger, goes := range ledgers {
		if !goes {
			continue
		}
		if err := reg.Delete(ctx, oci.RepoLayer, ledger); err != nil {
			return fmt.Errorf("remove account ledger %s: %w", ledger, err)
		}
	}
	for digest := range s.layers {
		if !gone(digest) {
			continue
		}
		attached, err := reg.From.Referrers(ctx, oci.RepoLayer, digest)
		if err != nil {
			return fmt.Errorf("what is attached to layer %s: %w", digest, err)
		}
		for _, d := range attached {
			if err := reg.Delete(ctx, oci.RepoLayer, d.Digest); err != nil {
				return fmt.Errorf("remove what is attached to layer %s: %w", digest, err)
			}
		}
		if err := reg.Delete(ctx, oci.RepoLayer, digest); err != nil {
			return fmt.Errorf("remove layer %s: %w", digest, err)
		}
	}
	return nil
}
