// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/compare"
	"github.com/caisson-os/caisson/test/fixture"
)

// pushed is a layer in a registry; each of its images holds the text of its name.
func pushed(t *testing.T, r *registry.Registry, version string, images map[string]string) release.Layer {
	t.Helper()
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "f", Version: version, Variant: "default", Arch: "amd64", Created: "2026-01-01T00:00:00Z",
		Packages: []spec.InstalledPackage{{Name: "a", Version: images["packages"]}}, Accounts: []spec.Account{{Name: images["accounts"]}}, Roots: map[string]string{}}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer}
	if images["layer"] != "" {
		if err := json.Unmarshal([]byte(images["layer"]), &l); err != nil {
			t.Fatal(err)
		}
	}
	put := func(mediaType, text string) spec.Blob {
		d := oci.Describe(mediaType, []byte(text))
		if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
			t.Fatal(err)
		}
		m.Layers = append(m.Layers, d.Bare())
		return spec.Blob{Digest: d.Digest, Size: d.Size}
	}
	for _, name := range []string{"base", "packages", "accounts", "policy", "agent"} {
		text := strings.Repeat(name+images[name]+"\n", 4096)
		if name == "agent" && images["file"] != "" {
			text = images["file"]
		}
		b := put(mediatype.Squashfs, text)
		l.Images = append(l.Images, spec.Image{Name: name, MediaType: mediatype.Squashfs, Blob: b})
		l.Roots[b.Digest] = strings.Repeat("0", 64)
	}
	l.Kernel = spec.KernelBlob{Release: "6.12", Blob: put(mediatype.Kernel, "kernel")}
	l.Initrd = put(mediatype.Initrd, "initrd"+images["packages"]+images["agent"])
	l.Recipe = put(oci.TypeRecipe, cmp.Or(images["recipe"], "recipe "+version)).Digest
	config, err := spec.Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	m.Config = putConfig(t, r, config)
	digest, err := r.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, oci.Encode(m))
	if err != nil {
		t.Fatal(err)
	}
	read, err := release.Read(t.Context(), r, digest)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func putConfig(t *testing.T, r *registry.Registry, config []byte) oci.Descriptor {
	t.Helper()
	d := oci.Describe(oci.TypeLayerConfig, config)
	if err := r.PutData(t.Context(), oci.RepoLayer, d); err != nil {
		t.Fatal(err)
	}
	return d.Bare()
}

// A layer of images of two is one that a node takes, with what each layer says of its images.
func TestStack(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := pushed(t, r, "1", map[string]string{})
	bad := pushed(t, r, "2", map[string]string{"packages": "2", "accounts": "2", "agent": "2"})
	all := sharesOf(good.Layer, bad.Layer)
	if want := []string{"layer/accounts", "layer/packages", "layer/agent"}; !slices.Equal(all, want) {
		t.Fatalf("%q, want %q", all, want)
	}
	for taken, of := range map[string][]string{"layer/accounts": {"accounts"}, "layer/packages": {"packages"}, "layer/agent": {"agent"}, "layer/accounts layer/packages": {"accounts", "packages"}} {
		l, stacked, err := stack(good, bad, nil, strings.Fields(taken))
		if err != nil {
			t.Fatal(err)
		}
		putConfig(t, r, stacked.Config)
		if _, err := r.PutManifest(t.Context(), oci.RepoLayer, oci.MediaTypeManifest, stacked.Manifest); err != nil {
			t.Fatal(err)
		}
		got, err := release.Read(t.Context(), r, l.Digest)
		if err != nil {
			t.Fatalf("%s: %v", taken, err)
		}
		for i, image := range got.Images {
			want := good.Images[i]
			if slices.Contains(of, image.Name) {
				want = bad.Images[i]
			}
			if image != want {
				t.Errorf("%s: image %s is that of the other layer", taken, image.Name)
			}
		}
		if packages := got.Packages[0].Version == "2"; packages != slices.Contains(of, "packages") || (got.Accounts[0].Name == "2") != slices.Contains(of, "accounts") {
			t.Errorf("%s: %+v %+v", taken, got.Packages, got.Accounts)
		}
		if changed := got.Initrd != good.Initrd; changed == slices.Equal(of, []string{"accounts"}) {
			t.Errorf("%s: the initrd has changed: %t", taken, changed)
		}
	}
}

// A layer is one part where it is made of other images.
func TestShares(t *testing.T) {
	images := func(names string) (l spec.Layer) {
		for name := range strings.FieldsSeq(names) {
			kind, _, _ := strings.Cut(name, ".")
			l.Images = append(l.Images, spec.Image{Name: kind, Blob: spec.Blob{Digest: name}})
		}
		return l
	}
	for bad, want := range map[string][]string{
		"base packages.2 accounts policy agent":   {"layer/packages"},
		"base.2 packages.2 accounts policy agent": {"layer/packages"},
		"base packages.2 accounts policy.2 agent": {"layer/packages", "layer/policy"},
		"base accounts.2 packages.2 policy agent": nil,
		"base packages.2 accounts.2 policy":       nil,
	} {
		if got := sharesOf(images("base packages accounts policy agent"), images(bad)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", bad, got, want)
		}
	}
	if got := sharesOf(images("base packages more"), images("base packages.2 more.2")); got != nil {
		t.Errorf("an image that is not known: %q", got)
	}
}

// All shares are the bad layer, none is the good one, and some are a layer that is stacked.
func TestMixedLayers(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := &sandbox.Kept{Overlay: fixture.Overlay(nil), Layer: pushed(t, r, "1", nil), Boot: []spec.BootNetwork{{VLAN: 7}}}
	bad := &sandbox.Kept{Overlay: fixture.Overlay(fixture.Worse), Layer: pushed(t, r, "2", map[string]string{"packages": "2", "policy": "2"}), Boot: []spec.BootNetwork{{VLAN: 9}}}
	if k, err := mixed(good, bad, nil, []string{compare.Network}); err != nil || k.Boot[0].VLAN != 9 {
		t.Errorf("with the network of the bad one: %+v, %v", k, err)
	}
	for parts, want := range map[string]string{"": good.Layer.Digest, "files//etc/motd": good.Layer.Digest, "layer/packages layer/policy": bad.Layer.Digest, "layer": bad.Layer.Digest, "layer/packages files//etc/motd": ""} {
		k, err := mixed(good, bad, nil, strings.Fields(parts))
		if err != nil {
			t.Fatal(err)
		}
		if stacked := k.Stacked != nil; stacked != (want == "") || !stacked && k.Layer.Digest != want || stacked && k.Overlay.Layer != k.Layer.Digest {
			t.Errorf("%q: layer %s, stacked %t, overlay on %s", parts, k.Layer.Digest, stacked, k.Overlay.Layer)
		}
		if k.Boot[0].VLAN != 7 {
			t.Errorf("%q: plugged in as by %+v", parts, k.Boot)
		}
		if motd := k.Overlay.Items.Files[0].Content == "b"; motd != strings.Contains(parts, "motd") {
			t.Errorf("%q: %+v", parts, k.Overlay.Items.Files)
		}
	}
}
