// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/trust/refusal"
)

// errUnreadable is a published thing that is there but is not what it should
// be: for a plan the same as if it were not there.
var errUnreadable = errors.New("unreadable")

// published reads what nodes are sent now. It writes nothing and makes nothing.
type published struct {
	registry *registry.Registry
	tags     map[string]string // of a layout: repo:tag to digest, read once
	empty    bool              // nothing was ever published there
	layers   map[string]*spec.Layer
}

func openPublished(ref string, reach *access) (*published, error) {
	p := &published{layers: map[string]*spec.Layer{}}
	parsed, err := oci.ParseRef(ref)
	if ref == "" || err != nil {
		return nil, cli.Usage("host[:port]/prefix, or oci:DIR", "--from: %q is no place to read from", ref)
	}
	if parsed.IsLayout() {
		// Its tags are read once; where it is not, nothing was published.
		raw, err := readIndex(filepath.Join(parsed.Layout, "index.json"))
		if errors.Is(err, fs.ErrNotExist) {
			p.empty = true
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		index, err := oci.ParseLayoutIndex(raw)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", parsed.Layout, err)
		}
		p.tags = map[string]string{}
		for _, d := range index.Manifests {
			p.tags[d.Annotations[oci.AnnotationRefName]] = d.Digest
		}
	}
	p.registry, err = reach.open(ref)
	return p, err
}

func readIndex(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, oci.MaxLayout+1))
	if err == nil && len(data) > oci.MaxLayout {
		err = fmt.Errorf("read %s: larger than %d bytes", name, oci.MaxLayout)
	}
	return data, err
}

// readers is how many overlays are asked for at a time.
const readers = 16

// compare gives a planner what is published for each node. Most of a fleet is
// as it was published: that its digest tells, without reading it.
func (p *published) compare(ctx context.Context, names []string, planner *plan.Planner) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan string)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for name := range next {
				if err := p.compareNode(ctx, name, planner); err != nil {
					cancel(fmt.Errorf("read overlay of %s: %w", name, err))
				}
			}
		})
	}
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		next <- name
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// documentDigest finds the digest of a manifest's first layer as oci writes it.
var documentDigest = regexp.MustCompile(`"layers":\[\{"mediaType":"[^"]*","digest":"(sha256:[0-9a-f]{64})"`)

func (p *published) compareNode(ctx context.Context, node string, planner *plan.Planner) error {
	if p.empty {
		planner.Add(node, nil)
		return nil
	}
	r, err := p.manifest(ctx, oci.RepoNode, node)
	if errors.Is(err, oci.ErrNotFound) {
		planner.Add(node, nil)
		return nil
	}
	if err != nil {
		return err
	}
	if m := documentDigest.FindSubmatch(r.Data); m != nil && planner.AddDigest(node, string(m[1])) {
		return nil
	}
	o, err := p.overlay(ctx, r)
	if err == nil {
		planner.Add(node, o)
	}
	return err
}

// manifest reads what a tag names; a layout's tags are known already.
func (p *published) manifest(ctx context.Context, repo, tag string) (oci.Response, error) {
	if p.tags != nil && !oci.ValidDigest(tag) {
		digest, ok := p.tags[repo+":"+tag]
		if !ok {
			return oci.Response{}, oci.ErrNotFound
		}
		tag = digest
	}
	return p.registry.Source().Manifest(ctx, repo, tag, "")
}

// overlay reads an overlay. One that is no overlay will be replaced, so it
// counts as none.
func (p *published) overlay(ctx context.Context, r oci.Response) (*spec.Overlay, error) {
	data, _, err := oci.ReadOverlay(ctx, p.registry.Source(), oci.RepoNode, r)
	if refusal.Of(err) != "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := &spec.Overlay{}
	if spec.Decode(data, o) != nil {
		return nil, nil
	}
	return o, nil
}

// layer reads the description of a layer by its manifest's digest.
func (p *published) layer(ctx context.Context, digest string) (*spec.Layer, error) {
	if l, ok := p.layers[digest]; ok {
		return l, nil
	}
	p.layers[digest] = nil
	r, err := p.manifest(ctx, oci.RepoLayer, digest)
	if err != nil {
		return nil, unreadable(err)
	}
	m, err := oci.ParseManifest(r.Data)
	if err != nil {
		return nil, unreadable(err)
	}
	data, err := oci.ReadBlob(ctx, p.registry.Source(), oci.RepoLayer, m.Config, oci.MaxConfig)
	if err != nil {
		return nil, unreadable(err)
	}
	l := &spec.Layer{}
	if err := spec.Decode(data, l); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	p.layers[digest] = l
	return l, nil
}

// unreadable marks what asking again would not mend.
func unreadable(err error) error {
	if errors.Is(err, oci.ErrNotFound) || refusal.Of(err) != "" {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return fmt.Errorf("read layer: %w", err)
}

// others lists nodes that are published but not among names.
func (p *published) others(ctx context.Context, names []string) ([]string, error) {
	if p.empty {
		return nil, nil
	}
	tags, err := p.registry.Tags(ctx, oci.RepoNode)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list published nodes: %w", err)
	}
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	var out []string
	for _, t := range tags {
		alias := strings.HasPrefix(t, "mac-") || strings.HasPrefix(t, "uuid-") || strings.HasPrefix(t, "sha256-")
		if !alias && !known[t] {
			out = append(out, t)
		}
	}
	return out, nil
}
