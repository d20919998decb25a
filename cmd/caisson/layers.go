// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// layerHelp explains how a layer is named on the command line.
const layerHelp = "LAYER is REF, REF@VERSION or REF@sha256:DIGEST; REF is host[:port]/prefix or oci:DIR, the\n" +
	"version is 'current' when none is given."

// storedLayer is a layer in a registry.
type storedLayer struct {
	registry *registry.Registry
	Digest   string
	Size     int64 // of the manifest
	Layer    spec.Layer
	Manifest *oci.Manifest
}

// openLayers opens what LAYER names: one layer, or all variants of a version.
func openLayers(ctx context.Context, reach *access, name string) ([]storedLayer, error) {
	ref, version := name, "current"
	if i := strings.LastIndexByte(name, '@'); i >= 0 {
		ref, version = name[:i], name[i+1:]
	}
	if !oci.ValidDigest(version) && !oci.ValidTag(version) {
		return nil, cli.Usage("a tag of the layer, or sha256:…", "%q names no layer", version)
	}
	reg, err := reach.existing(ref)
	if err != nil {
		return nil, err
	}
	raw, _, err := reg.Manifest(ctx, oci.RepoLayer, version)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, cli.WithHint(fmt.Errorf("%s holds no layer %s", ref, version), "caisson prune "+ref+" --dry-run lists the layers")
	}
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", version, err)
	}
	digests := []string{oci.Digest(raw)}
	if index, err := oci.ParseIndex(raw); err == nil { // else it is one layer's own manifest
		digests = nil
		for _, d := range index.Manifests {
			digests = append(digests, d.Digest)
		}
	}
	var all []storedLayer
	for _, digest := range digests {
		l, m, err := readLayer(ctx, reg, digest)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", digest, err)
		}
		all = append(all, storedLayer{registry: reg, Digest: digest, Size: int64(len(oci.Encode(*m))), Layer: l, Manifest: m})
	}
	return all, nil
}

// bytes is what a node without anything fetches of the layer.
func (l storedLayer) bytes() (n int64) {
	for _, i := range l.Layer.Images {
		n += i.Size
	}
	return n + l.Layer.Kernel.Size + l.Layer.Initrd.Size
}
