// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// difference is what diff -o json prints, one for each variant both have.
type difference struct {
	Variant  string         `json:"variant"`
	From     string         `json:"from"`
	To       string         `json:"to"`
	Kernel   *change        `json:"kernel,omitempty"`
	Images   []imageChange  `json:"images"`
	Packages []change       `json:"packages"`
	Accounts []change       `json:"accounts"`
	Profiles []change       `json:"profiles"`
	Files    []image.Change `json:"files,omitempty"` // with --files
	Bytes    int64          `json:"bytes"`           // that a node with the first fetches for the second
}

// change is one thing that differs; From or To is empty where it is not there.
type change struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

type imageChange struct {
	Name  string `json:"name"`
	From  int64  `json:"from"` // bytes
	To    int64  `json:"to"`
	Fetch int64  `json:"fetch"` // bytes of chunks that the first layer has not
}

func (a *app) diffCommand() *cobra.Command {
	var reach access
	var files bool
	c := &cobra.Command{
		Use:   "diff LAYER LAYER",
		Short: "Show what two system layers have not in common",
		Long: "Show what two system layers have not in common: packages, kernel, accounts, profiles, sizes,\n" +
			"what a node would fetch, and with --files every file. Exit code 3: there is a difference.\n\n" + layerHelp,
		Example: "  caisson diff oci:out@6 oci:out@7\n  caisson diff --files registry.example.org/metal@6 registry.example.org/metal",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := openLayers(c.Context(), &reach, args[0])
			if err != nil {
				return err
			}
			to, err := openLayers(c.Context(), &reach, args[1])
			if err != nil {
				return err
			}
			return a.diff(c.Context(), from, to, files)
		},
	}
	c.Flags().BoolVar(&files, "files", false, "compare every file; reads the images that differ")
	reach.flags(c.Flags())
	return c
}

func (a *app) diff(ctx context.Context, from, to []storedLayer, files bool) error {
	out := []difference{}
	for _, new := range to {
		old, ok := sameVariant(from, new, len(to))
		if !ok {
			a.say("variant %s is in one of the two only", new.Layer.Variant)
			continue
		}
		if old.Digest == new.Digest {
			continue
		}
		d, err := compareLayers(ctx, old, new)
		if err != nil {
			return err
		}
		if files {
			if d.Files, err = compareFiles(ctx, old, new); err != nil {
				return err
			}
		}
		out = append(out, d)
	}
	if a.json() {
		if err := cli.JSON(a.out, out); err != nil {
			return err
		}
	} else {
		for _, d := range out {
			a.printDifference(d)
		}
	}
	if len(out) > 0 {
		return cli.ErrDrift
	}
	return nil
}

// sameVariant finds the layer to compare with: that of the same variant, or the
// only one there is.
func sameVariant(from []storedLayer, l storedLayer, others int) (storedLayer, bool) {
	for _, f := range from {
		if f.Layer.Variant == l.Layer.Variant {
			return f, true
		}
	}
	if len(from) == 1 && others == 1 {
		return from[0], true
	}
	return storedLayer{}, false
}

func compareLayers(ctx context.Context, old, new storedLayer) (difference, error) {
	d := difference{Variant: new.Layer.Variant, From: old.Digest, To: new.Digest,
		Packages: compareMaps(packageMap(old.Layer), packageMap(new.Layer)),
		Accounts: compareMaps(accountMap(old.Layer), accountMap(new.Layer)),
		Profiles: compareMaps(profileMap(old.Layer), profileMap(new.Layer)),
		Images:   []imageChange{},
	}
	if old.Layer.Kernel.Release != new.Layer.Kernel.Release {
		d.Kernel = &change{Name: "kernel", From: old.Layer.Kernel.Release, To: new.Layer.Kernel.Release}
	}
	had := map[[32]byte]bool{}
	sizes := map[string]spec.Image{}
	for _, i := range old.Layer.Images {
		sizes[i.Name] = i
		chunks, err := readChunks(ctx, old, i)
		if err != nil {
			return d, err
		}
		for _, c := range chunks {
			had[c.Sum] = true
		}
	}
	for _, i := range new.Layer.Images {
		if sizes[i.Name].Digest == i.Digest {
			delete(sizes, i.Name)
			continue
		}
		c := imageChange{Name: i.Name, From: sizes[i.Name].Size, To: i.Size, Fetch: i.Size}
		delete(sizes, i.Name)
		chunks, err := readChunks(ctx, new, i)
		if err != nil {
			return d, err
		}
		if chunks != nil {
			c.Fetch = 0
			for _, chunk := range chunks {
				if !had[chunk.Sum] {
					c.Fetch += int64(chunk.Size)
				}
			}
		}
		d.Bytes += c.Fetch
		d.Images = append(d.Images, c)
	}
	for name, i := range sizes {
		d.Images = append(d.Images, imageChange{Name: name, From: i.Size})
	}
	if old.Layer.Kernel.Digest != new.Layer.Kernel.Digest {
		d.Bytes += new.Layer.Kernel.Size
	}
	if old.Layer.Initrd.Digest != new.Layer.Initrd.Digest {
		d.Bytes += new.Layer.Initrd.Size
	}
	return d, nil
}

// readChunks reads an image's chunk index, nil when it has none.
func readChunks(ctx context.Context, l storedLayer, i spec.Image) ([]image.Chunk, error) {
	if i.Chunks == nil {
		return nil, nil
	}
	d := oci.Descriptor{MediaType: oci.TypeChunks, Digest: i.Chunks.Digest, Size: i.Chunks.Size}
	data, err := oci.ReadBlob(ctx, l.registry.Source(), oci.RepoLayer, d, oci.MaxConfig)
	if err != nil {
		return nil, fmt.Errorf("chunk index of image %s: %w", i.Name, err)
	}
	return image.ParseIndex(data)
}

// compareFiles unpacks the images that differ and compares all that is in them.
func compareFiles(ctx context.Context, old, new storedLayer) ([]image.Change, error) {
	dir, err := os.MkdirTemp("", "caisson-diff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a temporary directory
	was := map[string]spec.Image{}
	for _, i := range old.Layer.Images {
		was[i.Name] = i
	}
	var changes []image.Change
	for _, i := range new.Layer.Images {
		if was[i.Name].Digest == i.Digest {
			continue
		}
		a, b := dir+"/a", dir+"/b"
		for file, from := range map[string]struct {
			l storedLayer
			i spec.Image
		}{a: {old, was[i.Name]}, b: {new, i}} {
			if from.i.Digest == "" {
				continue
			}
			d := oci.Descriptor{MediaType: from.i.MediaType, Digest: from.i.Digest, Size: from.i.Size}
			if err := saveBlob(ctx, from.l.registry, d, file); err != nil {
				return nil, fmt.Errorf("image %s: %w", i.Name, err)
			}
		}
		found, err := image.Compare(ctx, a, b)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Name, err)
		}
		changes = append(changes, found...)
		_ = os.Remove(a) // goes with the directory at the latest
		_ = os.Remove(b) // goes with the directory at the latest
	}
	return changes, nil
}

func packageMap(l spec.Layer) map[string]string {
	m := map[string]string{}
	for _, p := range l.Packages {
		m[p.Name] = p.Version
	}
	return m
}

func accountMap(l spec.Layer) map[string]string {
	m := map[string]string{}
	for _, acc := range l.Accounts {
		if acc.UID < 0 { // a group, which may have a user's name
			m["group "+acc.Name] = fmt.Sprintf("%d %s", acc.GID, acc.State)
			continue
		}
		m[acc.Name] = fmt.Sprintf("%d %s", acc.UID, acc.State)
	}
	return m
}

func profileMap(l spec.Layer) map[string]string {
	m := map[string]string{}
	for _, p := range l.AppArmor.Profiles {
		m[p.Name] = p.Mode
	}
	return m
}
