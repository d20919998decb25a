// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// The attacker of these tests can push to the registry and has no key.

// open is the registry as an attacker reaches it.
func (f *Fleet) open() (*registry.Registry, error) {
	if f.Registry != "" {
		return registry.Open(f.Registry, registry.Options{PlainHTTP: true})
	}
	return registry.Open("oci:"+filepath.Join(f.Dir, "out"), registry.Options{})
}

// Impersonate shows the overlay of one node under the tag of another.
func (f *Fleet) Impersonate(ctx context.Context, victim, other string) error {
	return f.retag(ctx, victim, other, func(doc []byte) []byte { return doc })
}

// Tamper changes a node's overlay and leaves everything else right: digests,
// sizes and the old signature.
func (f *Fleet) Tamper(ctx context.Context, node, from, to string) error {
	return f.retag(ctx, node, node, func(doc []byte) []byte { return bytes.Replace(doc, []byte(from), []byte(to), 1) })
}

func (f *Fleet) retag(ctx context.Context, victim, source string, change func([]byte) []byte) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	raw, _, err := r.Manifest(ctx, oci.RepoNode, source)
	if err != nil {
		return err
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return err
	}
	doc := change(m.Layers[0].Data)
	if source == victim && bytes.Equal(doc, m.Layers[0].Data) {
		return fmt.Errorf("the attack on %s changes nothing", victim)
	}
	return f.put(ctx, r, victim, doc, m.Layers[1].Data)
}

// put shows an overlay with a bundle under a node's name and aliases.
func (f *Fleet) put(ctx context.Context, r *registry.Registry, node string, doc, bundle []byte) error {
	raw, blobs := oci.OverlayManifest(doc, bundle)
	for _, b := range blobs {
		if err := r.PutData(ctx, oci.RepoNode, b); err != nil {
			return err
		}
	}
	tags, err := f.tagsOf(ctx, r, node)
	if err != nil {
		return err
	}
	_, err = r.PutManifest(ctx, oci.RepoNode, oci.MediaTypeManifest, raw, tags...)
	return err
}

// tagsOf lists the node's name and the aliases that show the same manifest.
func (f *Fleet) tagsOf(ctx context.Context, r *registry.Registry, node string) ([]string, error) {
	all, err := r.Tags(ctx, oci.RepoNode)
	if err != nil {
		return nil, err
	}
	own, _, err := r.Manifest(ctx, oci.RepoNode, node)
	if err != nil {
		return nil, err
	}
	var same []string
	for _, tag := range all {
		if raw, _, err := r.Manifest(ctx, oci.RepoNode, tag); err == nil && bytes.Equal(raw, own) {
			same = append(same, tag)
		}
	}
	return same, nil
}
