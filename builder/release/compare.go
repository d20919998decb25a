// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Difference holds the output of diff -o json, one for each variant both have.
type Difference struct {
	Variant  string         `json:"variant"`
	From     string         `json:"from"`
	To       string         `json:"to"`
	Kernel   *Change        `json:"kernel,omitempty"`
	Images   []ImageChange  `json:"images"`
	Packages []Change       `json:"packages"`
	Accounts []Change       `json:"accounts"`
	Profiles []Change       `json:"profiles"`
	Files    []image.Change `json:"files,omitzero"` // with --files
	Bytes    int64          `json:"bytes"`          // that a node with the first fetches for the second
}

// Change is one thing that differs; From or To is empty where it is not there.
type Change struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// ImageChange is an image that differs.
type ImageChange struct {
	Name  string `json:"name"`
	From  int64  `json:"from"` // bytes
	To    int64  `json:"to"`
	Fetch int64  `json:"fetch"` // bytes of chunks that the first layer's image has not, and of their index
}

// Compare compares the layers of the same variant; files compares all that is in
// their images. Layers that are equal, and variants that only one side has, are
// left out; alone names the latter.
func Compare(ctx context.Context, from, to []Layer, files bool) (out []Difference, alone []string, err error) {
	out = []Difference{}
	for _, new := range to {
		old, ok := sameVariant(from, new, len(to))
		if !ok {
			alone = append(alone, new.Variant)
			continue
		}
		if old.Digest == new.Digest {
			continue
		}
		d, err := compareLayers(ctx, old, new)
		if err != nil {
			return nil, nil, err
		}
		if files {
			if d.Files, err = compareFiles(ctx, old, new); err != nil {
				return nil, nil, err
			}
		}
		out = append(out, d)
	}
	return out, alone, nil
}

// sameVariant finds the layer to compare with: that of the same variant, or the
// only one there is.
func sameVariant(from []Layer, l Layer, others int) (Layer, bool) {
	for _, f := range from {
		if f.Variant == l.Variant {
			return f, true
		}
	}
	if len(from) == 1 && others == 1 {
		return from[0], true
	}
	return Layer{}, false
}

func compareLayers(ctx context.Context, old, new Layer) (Difference, error) {
	d := Difference{Variant: new.Variant, From: old.Digest, To: new.Digest,
		Packages: compareMaps(plain.Map(old.Packages, versionOf), plain.Map(new.Packages, versionOf)),
		Accounts: compareMaps(plain.Map(old.Accounts, numberOf), plain.Map(new.Accounts, numberOf)),
		Profiles: compareMaps(old.AppArmor.Modes(), new.AppArmor.Modes()),
	}
	if old.Kernel.Release != new.Kernel.Release {
		d.Kernel = &Change{Name: "kernel", From: old.Kernel.Release, To: new.Kernel.Release}
	}
	var err error
	d.Images, d.Bytes, err = fetched(ctx, old, new)
	return d, err
}

// fetched compares images by their chunks: what a node that has one layer fetches for the
// other, in all and of each image.
func fetched(ctx context.Context, old, new Layer) (images []ImageChange, bytes int64, err error) {
	images = []ImageChange{}
	was := plain.Map(old.Images, imageNamed)
	for _, i := range new.Images {
		before := was[i.Name]
		delete(was, i.Name)
		if before.Digest == i.Digest {
			continue
		}
		c := ImageChange{Name: i.Name, From: before.Size, To: i.Size, Fetch: i.Size}
		chunks, err := readChunks(ctx, new, i)
		if err != nil {
			return nil, 0, err
		}
		if chunks != nil {
			older, err := readChunks(ctx, old, before) // a node looks into images of the same name
			if err != nil {
				return nil, 0, err
			}
			had := plain.Map(older, func(chunk delta.Chunk) ([32]byte, bool) { return chunk.Sum, true })
			c.Fetch = i.Chunks.Size // the index comes, too
			for _, chunk := range chunks {
				if !had[chunk.Sum] {
					c.Fetch += int64(chunk.Size)
				}
			}
			c.Fetch = min(c.Fetch, i.Size)
		}
		bytes += c.Fetch
		images = append(images, c)
	}
	for _, i := range old.Images {
		if _, gone := was[i.Name]; gone {
			images = append(images, ImageChange{Name: i.Name, From: i.Size})
		}
	}
	if old.Kernel.Digest != new.Kernel.Digest {
		bytes += new.Kernel.Size
	}
	if old.Initrd.Digest != new.Initrd.Digest {
		bytes += new.Initrd.Size
	}
	return images, bytes, nil
}

// readChunks reads an image's chunk index, nil when it has none.
func readChunks(ctx context.Context, l Layer, i spec.Image) ([]delta.Chunk, error) {
	if i.Chunks == nil {
		return nil, nil
	}
	d := oci.Descriptor{MediaType: oci.TypeChunks, Digest: i.Chunks.Digest, Size: i.Chunks.Size}
	data, err := oci.ReadBlob(ctx, l.registry.Source(), oci.RepoLayer, d, oci.MaxConfig)
	if err != nil {
		return nil, fmt.Errorf("chunk index of image %s: %w", i.Name, err)
	}
	return delta.ParseIndex(data)
}

// compareFiles unpacks the images that differ and compares all that is in them.
func compareFiles(ctx context.Context, old, new Layer) ([]image.Change, error) {
	dir, err := os.MkdirTemp("", "caisson-diff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a temporary directory
	was := plain.Map(old.Images, imageNamed)
	changes := []image.Change{}
	for _, i := range new.Images {
		if was[i.Name].Digest == i.Digest {
			continue
		}
		a, b := dir+"/a", dir+"/b"
		err := Save(ctx, new.registry, i.Digest, b)
		if before := was[i.Name].Digest; err == nil && before != "" {
			err = Save(ctx, old.registry, before, a)
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Name, err)
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

// Write prints the difference for people.
func (d Difference) Write(w io.Writer) {
	cli.Printf(w, "variant %s: %s → %s\n", d.Variant, d.From, d.To)
	if d.Kernel != nil {
		cli.Printf(w, "  kernel %s → %s\n", d.Kernel.From, d.Kernel.To)
	}
	for _, list := range []struct {
		what    string
		changes []Change
	}{{"package", d.Packages}, {"account", d.Accounts}, {"profile", d.Profiles}} {
		for _, c := range list.changes {
			switch {
			case c.From == "":
				cli.Printf(w, "+ %s %s %s\n", list.what, c.Name, c.To)
			case c.To == "":
				cli.Printf(w, "- %s %s %s\n", list.what, c.Name, c.From)
			default:
				cli.Printf(w, "  %s %s %s → %s\n", list.what, c.Name, c.From, c.To)
			}
		}
	}
	for _, i := range d.Images {
		cli.Printf(w, "  image %s %s → %s, new in it %s\n", i.Name, plain.Bytes(i.From), plain.Bytes(i.To), plain.Bytes(i.Fetch))
	}
	for _, f := range d.Files {
		cli.Printf(w, "%s file %s\n", f.Mark(), f.Path)
	}
	cli.Printf(w, "a node that has the first fetches %s\n", plain.Bytes(d.Bytes))
}

// compareMaps lists the keys whose values differ, sorted.
func compareMaps(old, new map[string]string) []Change {
	changes := []Change{}
	names := maps.Clone(old)
	maps.Copy(names, new)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if old[name] != new[name] {
			changes = append(changes, Change{Name: name, From: old[name], To: new[name]})
		}
	}
	return changes
}

func imageNamed(i spec.Image) (string, spec.Image) { return i.Name, i }

func versionOf(p spec.InstalledPackage) (name, version string) { return p.Name, p.Version }

func numberOf(acc spec.Account) (name, number string) {
	if acc.UID < 0 { // a group, which may have a user's name
		return "group " + acc.Name, fmt.Sprintf("%d %s", acc.GID, acc.State)
	}
	return acc.Name, fmt.Sprintf("%d %s", acc.UID, acc.State)
}
