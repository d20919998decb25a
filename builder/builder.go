// SPDX-License-Identifier: Apache-2.0

// Package builder bakes one variant of a system layer: from a [spec.Recipe] to
// images, a kernel and an initrd, and a [spec.Layer] that describes them.
//
// The work is a visible list of [steps]. Each fills one tree, which becomes one
// image, and is remembered under the hash of all that it was made from; what
// did not change is not made again. Everything runs in namespaces that die with
// the builder, in a cache directory that one builder at a time may use.
//
// The package knows no registry and no boot agent: what it makes is pushed by
// cmd/caisson. Which tools it drives and why is in docs/building.md.
package builder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/spec"
)

// Options are everything beside the recipe.
type Options struct {
	SiteDir  string          // directory that the recipe's file names are relative to
	CacheDir string          // kept between builds
	Agent    string          // static caisson-agent binary
	Fast     bool            // weaker compression, for development
	Ledger   []spec.Account  // of the fleet, from [Settle], as this layer is to see it ([accounts.Leave])
	Lock     *packages.Lock  // packages to use; nil resolves again
	Shared   []packages.Lock // of other variants, one of which may be for the same packages where Lock is not
	Debs     string          // directory of kept packages: read, and written to
	Unsigned []string        // packages of the lock that are taken though no archive signed them, see [apt.Store]
	Again    bool            // every step is made anew, by programs that see another host name, see [Differ]
	Private  []string        // files of the layer that may hold a private key
	Boot     BootKey         // signs the kernel, and modules that are made for it; nil signs none
	Written  [][]Text        // what nodes of the layer write over it, each set once: who reads a file is asked about it
	Progress func(Event)     // may be nil

	// OpenOCI opens an OCI image, REF@sha256:…, as one tar of its whole file
	// system. Nil: there are no OCI bases.
	OpenOCI func(ctx context.Context, ref string) (io.ReadCloser, error)
}

// Settle gives the users of all variants their numbers, see [accounts.Settle].
// previous is the ledger of the layers before.
func Settle(recipes []spec.Recipe, previous []spec.Account) ([]spec.Account, error) {
	return accounts.Settle(plain.Each(recipes, func(r spec.Recipe) spec.Accounts { return r.Accounts }), previous)
}

// Result is a layer on disk. The paths stay valid while the cache is locked by
// nobody else; push them at once. Of accounts Layer has those that are in it, and no
// other: it is the same layer whatever the rest of the fleet does.
type Result struct {
	Layer   spec.Layer
	Recipe  []byte         // encoded; Layer.Recipe is its digest
	Blobs   []Blob         // every digest that Layer names
	Lock    packages.Lock  // what it was built from
	Ledger  []spec.Account // the fleet's, for the layers that are built after it
	Brought []spec.Account // accounts with numbers of people that the base and packages made
	trees   []string       // of the steps
}

// Blob is one file of the layer.
type Blob struct {
	spec.Blob
	MediaType string
	Path      string
	Title     string // for people: base, kernel, initrd, base.chunks …
}

// build is one run.
type build struct {
	options          Options
	recipe           spec.Recipe
	chosen           packages.Lock // the packages of this build
	epoch, baseEpoch int64         // seconds: of the layer and its packages, of every other image
	baseApt, apt     *apt.State    // archives of the base, and of the packages above it
	store            *apt.Store
	foreign          *foreign // a base that is not bootstrapped here, or nil
	tmp              string
	done             map[string]made // by step
	checked          map[string]bool // trees that are as they were left
	patience         time.Duration   // that a program may take which is asked about a text
}

// Build makes one variant.
func Build(ctx context.Context, recipe spec.Recipe, variant, version string, o Options) (*Result, error) {
	b := &build{options: o, recipe: recipe, done: map[string]made{}, checked: map[string]bool{}, patience: answerWait}
	if err := b.check(); err != nil {
		return nil, err
	}
	release, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := root.Try(ctx, b.tmp); err != nil {
		return nil, err
	}
	if err := boot.Emulates(ctx, b.tmp, b.options.Agent, b.recipe.Arch); err != nil {
		return nil, err
	}
	if err := b.resolve(ctx); err != nil {
		return nil, err
	}
	for _, s := range steps {
		if err := b.step(ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := b.public(); err != nil {
		return nil, err
	}
	if err := b.ask(ctx); err != nil {
		return nil, err
	}
	if shared := b.done[stepPackages].Facts.Shared; len(shared) > 0 {
		b.say(Event{Step: stepPackages, State: "note", Text: "each node makes its own " + strings.Join(shared, ", ") +
			"; where nodes of a cluster share it, give it by files with a secret"})
	}
	if late := slices.Concat(b.done[stepBase].Facts.Late, b.done[stepPackages].Facts.Late); len(late) > 0 {
		b.say(Event{Step: stepPackages, State: "note", Text: "the base has set up " + strings.Join(late, ", ") +
			" before: answers to debconf have no effect unless a newer version is installed"})
	}
	if err := b.keepDebs(ctx); err != nil {
		return nil, err
	}
	if err := b.trim(time.Now().Add(-keepUnused)); err != nil {
		return nil, err
	}
	return b.result(variant, version)
}

// public refuses a private key in the layer that the site does not name.
func (b *build) public() error {
	found := slices.Concat(packages.DescribePrivate(b.done[stepBase].Facts.Private, b.options.Private),
		packages.DescribePrivate(b.done[stepPackages].Facts.Private, b.options.Private))
	if len(found) == 0 {
		return nil
	}
	return cli.WithHint(fmt.Errorf("the layer has private keys, for every node and all who read the registry: %s", strings.Join(found, "; ")),
		"layer.privateKeys names those that may stay; a node's own comes by files with a secret, in place of the layer's")
}

// Resolve says which package files a build would take now, for a lock. It needs
// no root and builds nothing.
func Resolve(ctx context.Context, recipe spec.Recipe, o Options) (packages.Lock, error) {
	o.Lock = nil
	b := &build{options: o, recipe: recipe}
	if err := Check(recipe); err != nil {
		return packages.Lock{}, err
	}
	release, err := b.open(ctx)
	if err != nil {
		return packages.Lock{}, err
	}
	defer release()
	err = b.resolve(ctx)
	return b.chosen, err
}

// check finds what would stop the build late, before anything is done.
func (b *build) check() error {
	if err := root.Capable(); err != nil {
		return err
	}
	for tool, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "mksquashfs": "squashfs-tools", "tar": "tar",
		"xz": "xz-utils", "apt-get": "apt"} {
		if _, err := exec.LookPath(tool); err != nil {
			return apt.MissingTool(tool, pkg)
		}
	}
	if err := boot.CheckAgent(b.options.Agent, b.recipe.Arch); err != nil {
		return fmt.Errorf("agent binary %s: %w", b.options.Agent, err)
	}
	return Check(b.recipe)
}

// result collects what the steps made.
func (b *build) result(variant, version string) (*Result, error) {
	recipe, err := spec.Encode(b.recipe)
	if err != nil {
		return nil, err
	}
	r := &Result{Lock: b.chosen, Recipe: recipe, Layer: spec.Layer{
		APIVersion: spec.APIVersion, Kind: spec.KindLayer, Features: spec.Features(), Fleet: b.recipe.Fleet, Version: version, Variant: variant,
		Recipe: digest.Of(recipe), Arch: b.recipe.Arch, Created: time.Unix(b.epoch, 0).UTC().Format(time.RFC3339),
		Fast: b.options.Fast, Roots: map[string]string{},
	}}
	for _, s := range steps {
		m := b.done[s.name]
		for _, blob := range m.Blobs {
			r.Blobs = append(r.Blobs, Blob{Blob: blob.Blob, MediaType: blob.MediaType, Title: blob.Title, Path: filepath.Join(m.dir, blob.File)})
		}
		m.Facts.into(&r.Layer)
		if m.Image != nil {
			r.trees = append(r.trees, filepath.Join(m.dir, "tree"))
			r.Layer.Images = append(r.Layer.Images, *m.Image)
			r.Layer.Roots[m.Image.Digest] = m.Root
		}
	}
	r.Layer.Accounts = append(r.Layer.Accounts, b.done[stepPackages].Facts.System...)
	known, err := b.known(stepPackages)
	if err != nil {
		return nil, err
	}
	r.Brought = b.done[stepAccounts].Facts.Brought
	r.Ledger, err = accounts.Remember(Reserve(known, r.Brought), b.done[stepPackages].Facts.System)
	return r, err
}

// exists says whether a file is there; other trouble counts as there.
func exists(name string) bool {
	_, err := os.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// level is how hard a step's image is compressed.
func (b *build) level(step string) int {
	switch {
	case b.options.Fast:
		return image.LevelFast
	case step == stepPackages:
		return image.LevelOften
	}
	return image.LevelRelease
}

// Event is one piece of progress. State is one of: start, fetch, install,
// compress, push, note, cached, done.
type Event struct {
	Variant string  `json:"variant,omitempty"`
	Step    string  `json:"step"`
	State   string  `json:"state"`
	N       int     `json:"n,omitempty"` // packages so far
	Of      int     `json:"of,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"` // so far, or of what is done
	OfBytes int64   `json:"ofBytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Text    string  `json:"text,omitempty"`
}

func (b *build) say(e Event) {
	if b.options.Progress != nil {
		b.options.Progress(e)
	}
}

// Note says something of the accounts of all variants.
func (o Options) Note(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(Event{Step: stepAccounts, State: "note", Text: fmt.Sprintf(format, args...)})
	}
}

// counter turns dpkg's talk into package n of m.
func (b *build) counter(step string, of int) func(string) {
	n := 0
	return func(line string) {
		name, ok := strings.CutPrefix(line, "Setting up ")
		if !ok {
			return
		}
		n++
		name, _, _ = strings.Cut(name, " ")
		b.say(Event{Step: step, State: "install", N: min(n, of), Of: of, Text: name})
	}
}
