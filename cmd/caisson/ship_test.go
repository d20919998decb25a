// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/ukitest"
)

// ship is a program for scripts, "ship SITE REF VERSION [KEY]": it pushes and signs layers
// that fit a site, as build does, with a line of text for each image. With SHIP_OLD=1 their
// agents have no feature.
func ship() {
	key := ""
	if len(os.Args) > 4 {
		key = os.Args[4]
	}
	if err := shipLayers(os.Args[1], os.Args[2], os.Args[3], key); err != nil {
		fmt.Fprintln(os.Stderr, "ship:", err)
		os.Exit(1)
	}
}

func shipLayers(file, ref, version, key string) error {
	s, found := site.Parse(hostFiles{}, file)
	if err := found.Err(); err != nil {
		return err
	}
	variants, err := s.Variants()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ship")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // of a test
	var results []*builder.Result
	for _, v := range variants {
		r, err := pretend(s, v, version, dir)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	reg, err := registry.Open(ref, registry.Options{})
	if err != nil {
		return err
	}
	m, err := published.OpenMemory(memoryName(file))
	if err != nil {
		return err
	}
	seen, _ := m.At(reg.Ref().String())
	p := release.Pusher{Registry: reg, Tool: "test", Now: now(), Seen: seen.Layers.IssuedAt}
	f := release.KeyFiles{Release: key}
	f.Beside(s)
	if _, err := f.Check(s); err != nil {
		return err
	}
	if p.Release, p.Attest, err = f.Open(s); err != nil {
		return err
	}
	_, err = p.PushAll(context.Background(), s.Name(), version, &release.Built{Variants: variants, Results: results})
	return err
}

// pretend makes what a build of a variant would result in.
func pretend(s *site.Site, v site.Variant, version, dir string) (*builder.Result, error) {
	recipe, err := spec.Encode(v.Recipe)
	if err != nil {
		return nil, err
	}
	features := spec.Features()
	if os.Getenv("SHIP_OLD") == "1" {
		features = nil
	}
	r := &builder.Result{Recipe: recipe, Layer: spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Features: features, Fleet: s.Name(),
		Variant: v.Name, Recipe: oci.Digest(recipe), Arch: v.Recipe.Arch, Created: "2026-01-0" + version + "T00:00:00Z"}}
	for _, p := range strings.Fields(os.Getenv("SHIP_PACKAGES")) { // NAME=VERSION
		name, version, _ := strings.Cut(p, "=")
		r.Layer.Packages = append(r.Layer.Packages, spec.InstalledPackage{Name: name, Version: version, Arch: "amd64"})
	}
	put := func(title, mediaType string, text []byte) spec.Blob {
		b := spec.Blob{Digest: oci.Digest(text), Size: int64(len(text))}
		path := filepath.Join(dir, v.Name+title)
		err = errors.Join(err, os.WriteFile(path, text, 0o600))
		r.Blobs = append(r.Blobs, builder.Blob{Blob: b, MediaType: mediaType, Path: path, Title: title})
		return b
	}
	add := func(title, mediaType string) spec.Blob {
		return put(title, mediaType, []byte(title+" of "+version+", "+v.Name))
	}
	r.Layer.Images = []spec.Image{{Name: "base", MediaType: image.MediaType, Blob: add("base", image.MediaType)}}
	r.Layer.Kernel = spec.KernelBlob{Release: "6.12.0", Blob: add("kernel", mediatype.Kernel)}
	r.Layer.Initrd = add("initrd", mediatype.Initrd)
	if slices.ContainsFunc(v.Recipe.Packages.Install, func(p spec.Package) bool { return p.Name == "systemd-boot-efi" }) {
		r.Layer.UEFI = &spec.UEFI{Stub: put("stub", mediatype.UEFI, ukitest.Stub(8)), Manager: put("manager", mediatype.UEFI, ukitest.Stub(0))}
	}
	return r, err
}
