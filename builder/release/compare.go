// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
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

func compareLayers(ctx context.Context, old, new Layer) (d Difference, err error) {
	d = Difference{Variant: new.Variant, From: old.Digest, To: new.Digest,
		Packages: compareMaps(plain.Map(old.Packages, versionOf), plain.Map(new.Packages, versionOf)),
		Accounts: compareMaps(plain.Map(old.Accounts, numberOf), plain.Map(new.Accounts, numberOf)),
		Profiles: compareMaps(old.AppArmor.Modes(), new.AppArmor.Modes()),
	}
	if old.Kernel.Release != new.Kernel.Release {
		d.Kernel = &Change{Name: "kernel", From: old.Kernel.Release, To: new.Kernel.Release}
	}
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

// Planned gives a plan, or a comparison of what was, the layers of a registry. It is of
// one plan, and for one goroutine at a time.
type Planned struct {
	Context context.Context
	Read    func(ctx context.Context, digest string) (Layer, error)
	Current []Layer // that publish would name, none where nothing is to come
	Say     func(format string, args ...any)
	Err     error // of the registry, not of a layer: what is gone or damaged is for the plan to say

	layers map[string]Layer
}

// Published returns a layer by its digest, nil when it is not there.
func (p *Planned) Published(digest string) *plan.Layer {
	l, err := p.Read(p.Context, digest)
	if err != nil {
		p.note(err)
		return nil
	}
	return p.Add(l)
}

// Next returns the layer that publish would name for a variant, nil where it has to be built.
func (p *Planned) Next(v site.Variant) *plan.Layer {
	l, err := ForVariant(p.Current, site.RecipeID(v.Recipe), v.Name)
	if err != nil {
		return nil
	}
	return p.Add(l)
}

// Add returns what a plan needs of a layer, nil where its recipe is gone or damaged.
func (p *Planned) Add(l Layer) *plan.Layer {
	if p.layers == nil {
		p.layers = map[string]Layer{}
	}
	p.layers[l.Digest] = l
	made, leftOut, err := l.Made(p.Context)
	if err != nil {
		p.note(err)
		return nil
	}
	if leftOut = slices.Concat(l.LeftOut, leftOut); len(leftOut) > 0 {
		p.Say("layer %s: %s", l.Digest, spec.LeftOut(leftOut))
	}
	return &plan.Layer{Layer: l.Layer, Digest: l.Digest, Made: *made}
}

// Fetch returns how many bytes a node fetches for a layer when it has another, or none; 0
// where that cannot be told.
func (p *Planned) Fetch(from, to *plan.Layer) int64 {
	if from == nil {
		return p.layers[to.Digest].Bytes()
	}
	_, n, err := fetched(p.Context, p.layers[from.Digest], p.layers[to.Digest])
	p.note(err)
	return n
}

// note keeps an error that asking again could mend.
func (p *Planned) note(err error) {
	if err != nil && !errors.Is(err, oci.ErrNotFound) && refusal.Of(err) == "" {
		p.Err = errors.Join(p.Err, fmt.Errorf("read layer: %w", err))
	}
}

// Before holds the state that a build goes on from.
type Before struct {
	Ledger []spec.Account // whose each number is, see [Set.Accounts]
	Layers []Layer        // those that were current
}

// accounts returns who was in the layer that a variant takes the place of. A recipe that
// was built before has its own layer. Else that is the one of the variant's name. A
// variant with another recipe than any before has another name, too: its nodes had the
// default layer, or one that no node has from now on.
func (b Before) accounts(v site.Variant, all []site.Variant) (rows []spec.Account) {
	id := func(l Layer) string { return digest.Hex(l.Recipe) }
	for _, same := range []func(Layer) bool{
		func(l Layer) bool { return id(l) == site.RecipeID(v.Recipe) },
		func(l Layer) bool { return l.Variant == v.Name },
	} {
		if i := slices.IndexFunc(b.Layers, same); i >= 0 {
			return b.Layers[i].Accounts
		}
	}
	for _, l := range b.Layers {
		if l.Variant == site.DefaultVariant || !slices.ContainsFunc(all, func(v site.Variant) bool { return id(l) == site.RecipeID(v.Recipe) }) {
			rows = append(rows, l.Accounts...)
		}
	}
	return rows
}
