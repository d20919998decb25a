// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/mixture"
	"github.com/caisson-os/caisson/spec"
)

// Shares that are more than images: packages may be tried by name, and a loader has the agent, too.
const (
	packagesPart = mixture.Layer + "/packages"
	agentPart    = mixture.Layer + "/agent"
)

// share is a part of a layer that is tried apart from the rest: images of the bad layer among
// those of the good one. Nothing is built for that.
type share struct {
	name   string
	images []string
	items  []string                              // of the changes that it brings
	take   func(to *spec.Layer, from spec.Layer) // takes what a layer says of these images
}

// shares are in an order in which each has what it needs before it: an account may be there before
// the package whose service runs as it. Packages are on their base, and the kernel's modules are
// among them.
var shares = []share{
	{mixture.Layer + "/accounts", []string{spec.ImageAccounts}, []string{"uamlite"},
		func(to *spec.Layer, from spec.Layer) { to.Accounts = from.Accounts }},
	{packagesPart, []string{"base", "packages"}, []string{"base", "kernel", "apt"}, func(to *spec.Layer, from spec.Layer) {
		to.Kernel, to.Initrd, to.UEFI, to.Packages = from.Kernel, from.Initrd, from.UEFI, from.Packages
	}},
	{mixture.Layer + "/policy", []string{"policy"}, []string{"apparmor", "perm"},
		func(to *spec.Layer, from spec.Layer) { to.AppArmor = from.AppArmor }},
	{agentPart, []string{"agent"}, nil, func(to *spec.Layer, from spec.Layer) {
		to.Features = from.Features
		if to.Kernel.Blob == from.Kernel.Blob { // else its initrd has modules of another kernel
			to.Initrd = from.Initrd
		}
	}},
}

// sharesOf returns the shares in which two layers differ, none where they are not made of the same images.
func sharesOf(good, bad spec.Layer) (list []string) {
	known := 0
	for _, s := range shares {
		differs := false
		for i, image := range good.Images {
			if !slices.Contains(s.images, image.Name) {
				continue
			}
			if len(bad.Images) != len(good.Images) || bad.Images[i].Name != image.Name {
				return nil
			}
			differs = differs || bad.Images[i].Blob != image.Blob
			known++
		}
		if differs {
			list = append(list, s.name)
		}
	}
	if known != len(good.Images) || good.Arch != bad.Arch {
		return nil
	}
	return list
}

// split returns those parts that are shares of a layer, and the others.
func split(parts []string) (taken, rest []string) {
	for _, p := range parts {
		if strings.HasPrefix(p, mixture.Layer+"/") {
			taken = append(taken, p)
		} else {
			rest = append(rest, p)
		}
	}
	return taken, rest
}

// stack returns the good layer with some shares of the bad one, and what makes it. Packages are those of
// mixed where that is a layer.
func stack(good, bad release.Layer, mixed *release.Layer, taken []string) (release.Layer, *sandbox.Stacked, error) {
	l, of := good, []release.Layer{good, bad}
	if mixed != nil {
		of = append(of, *mixed)
	}
	l.Images, l.Roots = slices.Clone(good.Images), map[string]string{}
	for _, s := range shares {
		if !slices.Contains(taken, s.name) {
			continue
		}
		from := bad
		if mixed != nil && s.name == packagesPart {
			from = *mixed
		}
		s.take(&l.Layer, from.Layer)
		for _, image := range from.Images {
			if slices.Contains(s.images, image.Name) {
				l.Images[slices.IndexFunc(l.Images, func(i spec.Image) bool { return i.Name == image.Name })] = image
			}
		}
	}
	if mixed != nil {
		l.Initrd = mixed.Initrd // has the agent that is taken
	}
	for _, image := range l.Images {
		for _, from := range of {
			if root, ok := from.Roots[image.Digest]; ok {
				l.Roots[image.Digest] = root
			}
		}
	}
	config, err := spec.Encode(l.Layer)
	if err != nil {
		return l, nil, err
	}
	m := *good.Manifest
	m.Config, m.Layers = oci.Describe(oci.TypeLayerConfig, config).Bare(), slices.Clone(good.Manifest.Layers)
	for _, from := range of[1:] {
		for _, d := range from.Manifest.Layers {
			if !slices.ContainsFunc(m.Layers, func(has oci.Descriptor) bool { return has.Digest == d.Digest }) {
				m.Layers = append(m.Layers, d)
			}
		}
	}
	raw := oci.Encode(m)
	l.Manifest, l.Digest = &m, oci.Digest(raw)
	return l, &sandbox.Stacked{Of: of, Config: config, Manifest: raw}, nil
}
