// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/progress"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// imaged is the output of image -o json.
type imaged struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	Layer  string `json:"layer"`  // whose kernel loads
	Number int64  `json:"number"` // of the loader: boot managers take the highest
	// what the loader leaves in register 11 of a TPM, hexadecimal; absent where it is not known
	Register    string   `json:"register,omitempty"`
	Node        string   `json:"node,omitempty"`  // the one node that the medium is for
	Nodes       int      `json:"nodes,omitempty"` // whose overlays go along
	Until       string   `json:"until,omitempty"` // RFC 3339: from then on a node that has another overlay takes none of these
	Credentials []string `json:"credentials"`     // what looks like one; its holder can read it
}

// imageFlags are the flags of image.
type imageFlags struct {
	loaderFlags
	node      string
	out       string
	withLayer bool
	boot      bootFlags
}

func (a *app) imageCommand() *cobra.Command {
	var f imageFlags
	c := verb("image", func(c *cobra.Command, names []string) error { return a.image(c.Context(), f, names) })
	f.loaderFlags.flags(a, c)
	c.Flags().StringVar(&f.out, "out", "", "`FILE` to write: .efi, .iso, .raw, .raw.zst or .qcow2")
	c.Flags().StringVar(&f.node, "node", "", "the one node that the medium is for (the machine says who it is when empty)")
	c.Flags().BoolVar(&f.withLayer, "with-layer", false, "include the layer and the overlays")
	f.boot.loaderFlags(c.Flags())
	passphraseFlag(c.Flags(), &f.boot.keys.Passphrase)
	requireFlags(c, "out")
	return c
}

func (a *app) image(ctx context.Context, f imageFlags, names []string) error {
	if err := media.CheckName(f.out, f.withLayer); err != nil {
		return err
	}
	if err := cli.Writable("--out", f.out); err != nil {
		return err
	}
	if f.withLayer && f.unsigned {
		return cli.Usage("sign the layer: 'caisson build --key'", "--with-layer includes only what is verified, and --unsigned verifies nothing")
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	node, known := s.Fleet().Get(f.node)
	if f.node != "" && !known {
		return cli.Usage("'caisson explain' names the nearest ones", "the site has no node %q", f.node)
	}
	if f.node != "" && s.HasLayer() {
		f.arch = cmp.Or(f.arch, s.Layer().Arch(node))
	}
	source, reg, credentials, err := a.loaderSource(ctx, s, &f.loaderFlags, &f.boot, names[0])
	if err != nil {
		return err
	}
	m := media.Medium{Node: f.node, Fleet: s.Name(), State: 2*source.Layer.Bytes() + 256<<20} // two layers, and what a node writes besides
	source.Node = f.node
	if m.Loader, err = a.fetchLoader(ctx, reg, source); err != nil {
		return err
	}
	result := imaged{File: f.out, Layer: source.Layer.Digest, Node: f.node, Number: m.Loader.Number, Register: m.Loader.Register(),
		Credentials: credentials}
	a.say("the loader has%s, number %d, of layer %s", progress.Size(int64(len(m.Loader.Image))), m.Loader.Number, result.Layer)
	if f.withLayer {
		if m.Carried, err = os.MkdirTemp(filepath.Dir(f.out), ".carried.*"); err != nil {
			return err
		}
		defer os.RemoveAll(m.Carried) // the medium has it, or was not written
		c, err := a.carry(ctx, f, reg, names, m.Carried)
		if err != nil {
			return err
		}
		result.Nodes = c.Nodes
		if s.Trust().OnExpired == "hold" {
			result.Until = c.Expires.UTC().Format(time.RFC3339)
			a.say("%s expires at %s, and this site's nodes hold what has expired: from then on they take no other overlay from "+
				"the medium; run 'caisson refresh' before writing one",
				c.First, result.Until)
		}
	}
	a.say("writing %s", f.out)
	progress := a.progress()
	m.Step = func(what string, done, of int64) {
		progress.Event(builder.Event{Step: filepath.Base(f.out), State: what, Bytes: done, OfBytes: of})
	}
	err = m.Write(ctx, f.out)
	progress.Close()
	if err != nil {
		return err
	}
	info, err := os.Stat(f.out)
	if err != nil {
		return err
	}
	result.Bytes = info.Size()
	return a.show(result, func() { cli.Printf(a.out, "%s\t%s\n", f.out, plain.Bytes(result.Bytes)) })
}

// allows names what looks like a credential, and wants a word of the operator.
func (a *app) allows(credentials []string, yes bool) error {
	if len(credentials) == 0 {
		return nil
	}
	what := strings.Join(credentials, ", ")
	if yes {
		a.say("warning: whoever holds the medium can read: %s", what)
		return nil
	}
	if a.asks() && a.agrees("Whoever holds the medium can read: "+what+". Write it all the same?") {
		return nil
	}
	return cli.Usage("--yes writes it all the same", "whoever holds the medium can read: %s", what)
}

// carry copies what nodes need to come up into a layout.
func (a *app) carry(ctx context.Context, f imageFlags, from *registry.Registry, names []string, dir string) (*mirror.Carried, error) {
	to, err := registry.Open("oci:"+dir, registry.Options{})
	if err != nil {
		return nil, err
	}
	m := &mirror.Mirror{Say: a.say, To: &publish.Publisher{Registry: to, Now: now(), Say: a.say}}
	if m.From, err = a.publisher(from, nil, &trustFlags{site: names}, memoryFlags{}); err != nil {
		return nil, err
	}
	m.Policy = m.From.Trust
	carried, err := m.Nodes(ctx, f.node)
	if err != nil {
		return nil, err
	}
	var bytes int64
	for _, c := range carried.Copied {
		bytes += c.Bytes
	}
	a.say("%s with layers and images of services:%s", plain.Count(carried.Nodes, "overlay"), progress.Size(bytes))
	return carried, nil
}

// publishedLoader is the output of loader -o json.
type publishedLoader struct {
	spec.Loader
	Layer       string   `json:"layer"`              // whose kernel loads
	Register    string   `json:"register,omitempty"` // what it leaves in register 11 of a TPM, hexadecimal; absent where it is not known
	Unchanged   bool     `json:"unchanged"`          // fleet:current named it already
	Credentials []string `json:"credentials"`        // what looks like one; readers of the registry can read it
	DryRun      bool     `json:"dryRun,omitempty"`   // nothing was published
}

// loaderVerb are the flags of loader.
type loaderVerb struct {
	loaderFlags
	who   signers
	known memoryFlags
	boot  bootFlags
}

func (a *app) loaderCommand() *cobra.Command {
	var f loaderVerb
	c := verb("loader", func(c *cobra.Command, names []string) error { return a.publishLoader(c.Context(), f, names) })
	f.loaderFlags.flags(a, c)
	f.who.flags(c.Flags())
	f.known.flags(c.Flags())
	f.boot.loaderFlags(c.Flags())
	return c
}

func (a *app) publishLoader(ctx context.Context, f loaderVerb, names []string) error {
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	f.boot.keys.Passphrase = f.who.passphrase
	source, reg, credentials, err := a.loaderSource(ctx, s, &f.loaderFlags, &f.boot, names[0])
	if err != nil {
		return err
	}
	result := publishedLoader{Layer: source.Layer.Digest, Credentials: credentials, DryRun: f.who.dry}
	f.known.remember = cmp.Or(f.known.remember, memoryName(names[0]))
	x := changing{looking{reach: f.registry, whom: trustFlags{site: names}, known: f.known}, f.who}
	p, err := x.publisher(a, f.from)
	if err != nil {
		return err
	}
	l, err := a.fetchLoader(ctx, reg, source)
	if err != nil {
		return err
	}
	published, err := p.Loaders(ctx)
	if err != nil {
		return err
	}
	before, err := l.Follow(published)
	if err != nil {
		return err
	}
	if result.Unchanged = before != nil; result.Unchanged {
		result.Loader = *before
	} else if result.Loader, err = a.pushLoader(ctx, p, l, f.who.dry); err != nil {
		return err
	}
	result.Register = l.Register()
	return a.show(result, func() {
		cli.Printf(a.out, "loader %d\t%s\t%s\n", result.Number, result.Arch, result.Image.Digest)
		if result.Unchanged {
			a.say("fleet:current names it already")
		}
	})
}

func (a *app) pushLoader(ctx context.Context, p *publish.Publisher, l *media.Loader, dry bool) (spec.Loader, error) {
	if dry {
		return spec.Loader{Arch: l.Arch, Number: l.Number, Image: spec.Blob{Digest: digest.Of(l.Image), Size: int64(len(l.Image))}}, nil
	}
	a.say("pushing loader %d,%s", l.Number, progress.Size(int64(len(l.Image))))
	pushed, err := l.Push(ctx, p.Registry)
	if err != nil {
		return pushed, err
	}
	_, err = p.Refresh(ctx, publish.Lists{Loader: &pushed})
	return pushed, err
}
