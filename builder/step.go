// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/spec"
)

// format is part of every key: raise it when a step makes something else from
// the same inputs.
const format = 17

// step makes one tree (and from it one image), or one set of files.
type step struct {
	name   string
	above  func(*build) []string     // steps whose trees it sees, top first; nil for none
	inputs func(*build) (any, error) // what it is made from, besides those trees
	reads  *reads                    // of the packages' tree, where that is not all of it
	fill   func(context.Context, *build, *root.Root) (facts, error)
	files  func(context.Context, *build, *root.Root, string) ([]file, facts, error) // instead of fill: no image
}

// below lists the steps that s builds on, top first.
func (s step) below(b *build) []string {
	if s.above == nil {
		return nil
	}
	return s.above(b)
}

// facts holds the additions of a step to the description of the layer.
type facts struct {
	Kernel   *spec.KernelBlob        `json:"kernel,omitempty"`
	Initrd   *spec.Blob              `json:"initrd,omitempty"`
	UEFI     *spec.UEFI              `json:"uefi,omitempty"`
	Packages []spec.InstalledPackage `json:"packages,omitempty"`
	Accounts []spec.Account          `json:"accounts,omitempty"`
	Found    []spec.Account          `json:"found,omitempty"`   // as the packages' scripts made them
	System   []spec.Account          `json:"system,omitempty"`  // the same, as the ledger has them
	Brought  []spec.Account          `json:"brought,omitempty"` // with numbers of people, by the base and packages
	AppArmor *spec.LoadedPolicy      `json:"apparmor,omitempty"`
	Shared   []string                `json:"shared,omitempty"`  // files left out that the nodes of a cluster share
	Private  map[string]string       `json:"private,omitempty"` // private keys that are in the tree, see [packages.FindPrivate]
	Late     []string                `json:"late,omitempty"`    // packages set up before the site's answers to debconf came
}

func (f facts) into(l *spec.Layer) {
	l.Kernel, l.Initrd = *cmp.Or(f.Kernel, &l.Kernel), *cmp.Or(f.Initrd, &l.Initrd)
	l.UEFI, l.AppArmor = cmp.Or(f.UEFI, l.UEFI), *cmp.Or(f.AppArmor, &l.AppArmor)
	if f.Packages != nil {
		l.Packages = f.Packages
	}
	if f.Accounts != nil {
		l.Accounts = f.Accounts
	}
}

// file is one blob in a step's directory.
type file struct {
	File      string `json:"file"`
	Title     string `json:"title"`
	MediaType string `json:"mediaType"`
	spec.Blob
	Identity string `json:"identity"` // see [image.Seal]
}

// made describes the result of a step in the cache: its directory holds made.json, the blobs,
// and "tree" when later steps build on it.
type made struct {
	Key   string            `json:"key"`
	Image *spec.Image       `json:"image,omitempty"`
	Root  string            `json:"root,omitempty"` // of the image's hash tree
	Blobs []file            `json:"blobs"`
	Facts facts             `json:"facts"`
	Tree  *image.Seal       `json:"tree,omitempty"`
	Parts map[string]string `json:"parts,omitempty"` // sums of what later steps read of the tree
	dir   string
}

// step runs s, or finds that it was run before.
func (b *build) step(ctx context.Context, s step) error {
	start := time.Now()
	key, err := b.key(s)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.options.CacheDir, "steps", s.name+"-"+key[:24])
	if m, err := b.remembered(s.name, dir, key); err != nil {
		return err
	} else if m != nil {
		b.done[s.name] = *m
		b.say(Event{Step: s.name, State: "cached", Bytes: m.bytes()})
		return nil
	}
	for _, below := range s.below(b) {
		if err := b.sound(ctx, below); err != nil {
			return err
		}
	}
	b.say(Event{Step: s.name, State: "start"})
	work := filepath.Join(b.tmp, s.name)
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(work) // the next build clears what is left
	m, err := b.run(ctx, s, work)
	if err != nil {
		return err
	}
	m.Key = key + m.Facts.numbering()
	dir += m.Facts.numbering()
	if err := m.keep(work, dir); err != nil {
		return err
	}
	m.dir = dir
	b.done[s.name], b.checked[filepath.Join(dir, "tree")] = m, true
	b.say(Event{Step: s.name, State: "done", Bytes: m.bytes(), Seconds: time.Since(start).Seconds()})
	return nil
}

// key is the hash of everything that s is made from.
func (b *build) key(s step) (string, error) {
	inputs, err := s.inputs(b)
	if err != nil {
		return "", err
	}
	above := plain.Map(s.below(b), func(name string) (step, key string) { return name, b.keyAbove(s, name) })
	from := map[string]any{"step": s.name, "format": format, "arch": b.recipe.Arch, "above": above, "inputs": inputs,
		"epoch": b.epochOf(s.name), "level": b.level(s.name)}
	if b.options.Again {
		from["again"] = true
	}
	data, err := json.Marshal(from)
	if err != nil {
		return "", err
	}
	return digest.Hex(digest.Of(data)), nil
}

// epochOf is the latest date that a file of the step's image can have.
func (b *build) epochOf(step string) int64 {
	if step == stepPackages {
		return b.epoch
	}
	return b.baseEpoch
}

func (b *build) run(ctx context.Context, s step, work string) (made, error) {
	r := &root.Root{Work: b.tmp, Epoch: b.epochOf(s.name)}
	if b.options.Again {
		r.Host = "elsewhere"
	}
	r.Lowers = plain.Each(s.below(b), func(name string) string { return filepath.Join(b.done[name].dir, "tree") })
	if s.files != nil {
		files, f, err := s.files(ctx, b, r, work)
		return made{Blobs: files, Facts: f}, err
	}
	r.Upper = filepath.Join(work, "tree")
	if err := r.MkdirAll("/", 0o755); err != nil {
		return made{}, err
	}
	f, err := s.fill(ctx, b, r)
	if err != nil {
		return made{}, err
	}
	if err := image.Flatten(r.Upper, r.Lowers); err != nil {
		return made{}, err
	}
	if err := image.Clean(r.Upper); err != nil {
		return made{}, err
	}
	split, err := image.SplitLinks(r.Upper, r.Lowers)
	if err != nil {
		return made{}, err
	}
	if len(split) > 0 {
		b.say(Event{Step: s.name, State: "note", Text: "hard links that are separate files now: " + strings.Join(split, ", ")})
	}
	m := made{Facts: f}
	if s.name == stepPackages {
		if m.Parts, err = parts(r); err != nil {
			return made{}, err
		}
	}
	sealed := make(chan error, 1) // the tree is read by one processor while others compress it
	go func() {
		tree, err := image.SealTree(r.Upper)
		m.Tree = &tree
		sealed <- err
	}()
	img, blobs, err := b.image(ctx, s.name, r.Upper, work)
	if sealErr := <-sealed; err == nil && sealErr != nil {
		err = fmt.Errorf("seal tree: %w", sealErr)
	}
	if err != nil {
		return m, err
	}
	m.Image, m.Blobs = img, blobs
	m.Root, err = rootOf(work, *img)
	return m, err
}

// image turns a tree into an image and its chunk index.
func (b *build) image(ctx context.Context, name, tree, work string) (*spec.Image, []file, error) {
	b.say(Event{Step: name, State: "compress"})
	out := filepath.Join(work, imageName)
	if err := image.Squashfs(ctx, tree, out, image.Options{Level: b.level(name), Epoch: b.epochOf(name),
		Progress: func(read, of, written int64) {
			e := Event{Step: name, State: "compress", Bytes: read, OfBytes: of}
			if read == of {
				e.Text = fmt.Sprintf("all read, %.1f MB written", float64(written)/1e6)
			}
			b.say(e)
		}}); err != nil {
		return nil, nil, err
	}
	const chunks = "image.chunks"
	var index file
	// One look at the image is enough for its digest and its chunks. Its hash tree takes another:
	// what it is salted with is the digest.
	built, err := describeWith(work, imageName, name, image.MediaType, func(in io.Reader) error {
		return durable.Write(filepath.Join(work, chunks), 0o644, func(w io.Writer) error { return delta.WriteIndex(w, in) })
	})
	if err == nil {
		index, err = describe(work, chunks, name+".chunks", delta.MediaType)
	}
	if err != nil {
		return nil, nil, err
	}
	img := &spec.Image{Name: name, MediaType: built.MediaType, Blob: built.Blob, Chunks: &index.Blob}
	return img, []file{built, index}, nil
}

func (m made) bytes() (n int64) {
	for _, blob := range m.Blobs {
		n += blob.Size
	}
	return n
}

// describe hashes a file of a step's directory.
func describe(dir, name, title, mediaType string) (file, error) {
	return describeWith(dir, name, title, mediaType, func(io.Reader) error { return nil })
}

// describeWith hashes a file in the one look at it that read takes.
func describeWith(dir, name, title, mediaType string, read func(io.Reader) error) (file, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return file{}, err
	}
	defer f.Close() // only read
	sum := sha256.New()
	if err := read(io.TeeReader(f, sum)); err != nil {
		return file{}, err
	}
	if _, err := io.Copy(sum, f); err != nil { // what was not read
		return file{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	return file{File: name, Title: title, MediaType: mediaType, Blob: spec.Blob{Digest: digest.From(sum), Size: info.Size()}}, nil
}
