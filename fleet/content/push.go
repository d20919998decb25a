// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Tag is the tag of an image, by which it stays in a registry.
func Tag(image string) string { return "keep-" + strings.Replace(image, ":", "-", 1) }

// Push brings the images that overlays of a site name into a registry. What it has is
// not asked for anywhere else.
func (c *Source) Push(ctx context.Context, r *registry.Registry, s *site.Site) error {
	services := s.Services()
	for i := range services {
		v := &services[i]
		l, ok := s.Locked(v.Name)
		if !ok || l.Stale(v) != "" {
			continue // a node that has it cannot be compiled
		}
		has, err := has(ctx, r, l.Image)
		if err == nil && !has {
			var file string
			if file, err = c.image(ctx, v, l); err == nil {
				err = push(ctx, r, l.Image, file)
			}
		}
		if err != nil {
			return ofService(v.Name, err)
		}
	}
	return nil
}

// manifest keeps an image, and says nothing else: the same image has the same one.
func manifest(image spec.Blob) oci.Manifest {
	return oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeService, Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(),
		Layers: []oci.Descriptor{{MediaType: oci.TypeSquashfs, Digest: image.Digest, Size: image.Size}}}
}

// has reports whether a registry keeps an image. What it says of it is not believed:
// nodes compare the image with their overlay.
func has(ctx context.Context, r *registry.Registry, image spec.Blob) (bool, error) {
	resp, err := r.Source().Manifest(ctx, oci.RepoService, Tag(image.Digest), "")
	if errors.Is(err, oci.ErrNotFound) {
		return false, nil
	}
	return err == nil && resp.Digest == oci.Digest(oci.Encode(manifest(image))), err
}

func push(ctx context.Context, r *registry.Registry, image spec.Blob, file string) error {
	d := oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: image.Digest, Size: image.Size}
	if err := r.PutBlob(ctx, oci.RepoService, d, func() (io.ReadCloser, error) { return os.Open(file) }); err != nil {
		return fmt.Errorf("push its image: %w", err)
	}
	if err := r.PutData(ctx, oci.RepoService, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		return fmt.Errorf("push its image: %w", err)
	}
	if _, err := r.PutManifest(ctx, oci.RepoService, oci.MediaTypeManifest, oci.Encode(manifest(image)), Tag(image.Digest)); err != nil {
		return fmt.Errorf("push its image: %w", err)
	}
	return nil
}
