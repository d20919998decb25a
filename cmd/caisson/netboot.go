// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/progress"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/media/netboot"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// netbooted is the output of netboot -o json.
type netbooted struct {
	Layer string   `json:"layer"`
	Files []string `json:"files"`
}

// nodesAsk is which registry nodes ask, and how they reach it.
type nodesAsk struct {
	ask      string
	askPlain bool
	mirrors  []string
	proxy    string
}

func (x *nodesAsk) flags(f *pflag.FlagSet) {
	f.StringVar(&x.ask, "registry", "", "registry that the nodes ask (the site's own when empty)")
	f.BoolVar(&x.askPlain, "registry-plain-http", false, "the nodes talk HTTP to it (default on loopback without --ca)")
	f.StringArrayVar(&x.mirrors, "mirror", nil, "registry that the nodes ask when that one does not answer; several, in order")
	f.StringVar(&x.proxy, "proxy", "", "HTTP proxy `URL` between the nodes and the registry")
}

// anchor returns whom the nodes of a site trust; cas are of the registry that they ask.
func (x *nodesAsk) anchor(s *site.Site, cas []string) (spec.Bootstrap, error) {
	plain := x.askPlain || loopback(cmp.Or(x.ask, s.Registry())) && len(cas) == 0 // as enroll does
	return netboot.Bootstrap(s, netboot.Registry{Ref: x.ask, PlainHTTP: plain, Mirrors: x.mirrors, Proxy: x.proxy, CAs: cas})
}

// loaderFlags say what a loader is made of, and whom its nodes ask.
type loaderFlags struct {
	registry access
	from     string
	layer    string
	arch     string
	nodesAsk
	args     []string
	unsigned bool
	disk     string
}

func (f *loaderFlags) flags(a *app, c *cobra.Command) {
	f.registry.flags(a, c.Flags())
	c.Flags().StringVar(&f.from, "from", "", "registry or layout with the layer (the site's own when empty)")
	c.Flags().StringVar(&f.layer, "layer", "", "digest of the layer whose kernel loads (the current default variant when empty)")
	c.Flags().StringVar(&f.arch, "arch", "", "architecture of the machines, amd64 or arm64 (that of the default variant when empty)")
	f.nodesAsk.flags(c.Flags())
	c.Flags().StringArrayVar(&f.args, "kernel-arg", nil, "further argument of the loader's kernel")
	c.Flags().StringVar(&f.disk, "state-disk", "", "partition `UUID` of the state disk, which may then be removable (the "+
		"fixed partition named caisson-state when empty)")
	c.Flags().BoolVar(&f.unsigned, "unsigned", false, "boot a layer that no release key signed")
}

// bootFlags say which key signs what firmware starts.
type bootFlags struct {
	keys   release.KeyFiles
	named  func() bool
	former []string
	yes    bool // to credentials in a loader
}

func (x *bootFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&x.keys.Boot, "boot-key", "", "boot key that signs what firmware starts: `FILE`, env:NAME, fd:N or "+
		"command:CMD (keys/boot.key beside the site when absent)")
	x.named = func() bool { return f.Changed("boot-key") }
}

// key reads the certificate of the key that is named or lies beside the site, nil without any.
func (x *bootFlags) key(a *app, s *site.Site) (builder.BootKey, error) {
	if !x.named() && x.keys.BootBeside(s) {
		a.say("signing for firmware with %s", x.keys.Boot)
	}
	return x.keys.BootKey(s)
}

// loaderFlags are those of a verb that makes a loader alone.
func (x *bootFlags) loaderFlags(f *pflag.FlagSet) {
	x.flags(f)
	f.StringArrayVar(&x.former, "boot-key-before", nil, "`NAME` of a pair that was the boot key, env:NAME, fd:N or command:CMD: "+
		"the loader also opens what nodes' TPMs have sealed to it")
	f.BoolVar(&x.yes, "yes", false, "do not ask about credentials")
}

// loaderSource returns what a loader is made of and where its layer is, with what in it looks like a
// credential, once the operator has agreed to that.
func (a *app) loaderSource(ctx context.Context, s *site.Site, f *loaderFlags, boot *bootFlags,
	file string) (from media.Source, reg *registry.Registry, credentials []string, err error) {
	if from.Key, err = boot.key(a, s); err != nil {
		return from, nil, nil, err
	}
	if err = from.Signed(boot.former, &boot.keys.Passphrase); err != nil {
		return from, nil, nil, err
	}
	if reg, err = a.loader(ctx, s, f, file, &from); err != nil {
		return from, nil, nil, err
	}
	credentials = append([]string{}, media.Credentials(from.Bootstrap, f.args)...)
	return from, reg, credentials, a.allows(credentials, boot.yes)
}

// fetchLoader makes a loader, and says where no key in a TPM opens behind it.
func (a *app) fetchLoader(ctx context.Context, r *registry.Registry, from media.Source) (*media.Loader, error) {
	l, err := media.Fetch(ctx, r, from)
	if err == nil && from.Key != nil && l.Register() == "" {
		a.say("warning: it is not known what the stub of layer %s measures: behind this loader no node seals its key of secrets "+
			"to a TPM, and none opens a sealed one", from.Layer.Digest)
	}
	return l, err
}

// netbootFlags are the flags of netboot.
type netbootFlags struct {
	loaderFlags
	out     string
	httpURL string
	ipxe    string
}

func (a *app) netbootCommand() *cobra.Command {
	var f netbootFlags
	c := verb("netboot", func(c *cobra.Command, names []string) error { return a.netboot(c.Context(), f, names) })
	f.loaderFlags.flags(a, c)
	c.Flags().StringVar(&f.out, "out", "", "directory to write")
	c.Flags().StringVar(&f.httpURL, "http-url", "", "where the directory is served, for boot.ipxe (beside the script when empty)")
	c.Flags().StringVar(&f.ipxe, "ipxe", netboot.IPXEDir, "include iPXE's programs for BIOS and UEFI from this `DIR`; empty for none")
	requireFlags(c, "out")
	c.AddCommand(a.netbootServeCommand())
	return c
}

func (a *app) netboot(ctx context.Context, f netbootFlags, names []string) error {
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	var from media.Source
	reg, err := a.loader(ctx, s, &f.loaderFlags, names[0], &from)
	if err != nil {
		return err
	}
	l := from.Layer
	if err := netboot.Write(ctx, reg, f.out, netboot.Loader{Layer: l, Bootstrap: from.Bootstrap, URL: f.httpURL, Args: f.args}); err != nil {
		return err
	}
	carried, err := netboot.CarryIPXE(f.ipxe, f.out)
	if err != nil {
		return err
	}
	if carried == nil && f.ipxe != "" {
		a.say("no iPXE in %s: firmware that is not iPXE itself needs undionly.kpxe or ipxe.efi; on Debian: apt install ipxe", f.ipxe)
	}
	files := append(slices.Clone(netboot.Files), carried...)
	return a.show(netbooted{Layer: l.Digest, Files: files}, func() {
		for _, name := range files {
			cli.Printf(a.out, "%s\n", filepath.Join(f.out, name))
		}
		a.say("each boot loads%s: kernel%s, initrd%s", progress.Size(l.Kernel.Size+l.Initrd.Size), progress.Size(l.Kernel.Size),
			progress.Size(l.Initrd.Size))
	})
}

// loader adds to what a loader is made of whom its nodes trust, and the layer whose kernel it has,
// which it opens the place of.
func (a *app) loader(ctx context.Context, s *site.Site, f *loaderFlags, file string, into *media.Source) (*registry.Registry, error) {
	f.from = cmp.Or(f.from, s.Registry())
	o, err := f.registry.options(f.ask)
	if err != nil {
		return nil, err
	}
	b, err := f.anchor(s, o.CAs)
	if err != nil {
		return nil, err
	}
	if err = netboot.NameStateDisk(&b, f.disk); err != nil {
		return nil, err
	}
	reg, err := f.registry.existing(f.from)
	if err != nil {
		return nil, err
	}
	on, err := a.siteLayers(ctx, reg, s, file)
	if err != nil {
		return nil, err
	}
	into.Bootstrap, into.Args = netboot.Follow(b, on.Trusted.Chain), f.args
	into.Layer, err = on.Loads(ctx, f.layer, f.arch, f.unsigned)
	return reg, err
}

// siteLayers returns a site's layers in a registry, by what is remembered beside the site.
func (a *app) siteLayers(ctx context.Context, reg *registry.Registry, s *site.Site, file string) (policy.Layers, error) {
	m, err := published.OpenMemory(memoryName(file))
	if err != nil {
		return policy.Layers{}, err
	}
	return policy.OpenLayers(ctx, &published.Reader{Registry: reg, Memory: m, Now: now(), Say: a.say}, s)
}

// bootstrapped is the output of bootstrap -o json where it writes a file; else it prints what
// would be in it.
type bootstrapped struct {
	File string `json:"file"`
}

func (a *app) bootstrapCommand() *cobra.Command {
	var f nodesAsk
	var reach access
	var from, out string
	c := verb("bootstrap", func(c *cobra.Command, names []string) error {
		if err := cli.Writable("--out", out); err != nil {
			return err
		}
		s, err := a.loadSite(names...)
		if err != nil {
			return err
		}
		o, err := reach.options(f.ask)
		if err != nil {
			return err
		}
		b, err := f.anchor(s, o.CAs)
		if err != nil {
			return err
		}
		from = cmp.Or(from, s.Registry())
		if b.Chain != nil { // else the site has no versions of its keys, and no registry is asked
			reg, err := reach.existing(from)
			if err != nil {
				return err
			}
			on, err := a.siteLayers(c.Context(), reg, s, names[0])
			if err != nil {
				return err
			}
			b = netboot.Follow(b, on.Trusted.Chain)
		}
		data, err := spec.Encode(netboot.ForHost(b))
		if err != nil {
			return err
		}
		if out == "" {
			_, err = a.out.Write(append(data, '\n'))
			return err
		}
		if err := durable.WriteFile(out, data, 0o644); err != nil {
			return fmt.Errorf("write site.json: %w", err)
		}
		return a.show(bootstrapped{out}, func() {
			cli.Printf(a.out, "%s\n", out)
			a.say("on the host: caisson-agent enroll --site %s", out)
		})
	})
	f.flags(c.Flags())
	reach.flags(a, c.Flags())
	c.Flags().StringVar(&from, "from", "", "registry or layout where the fleet is published (the site's own when empty)")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write; standard output when empty")
	return c
}

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
	node, err := s.Fleet().Node(f.node)
	if f.node != "" && err != nil {
		return err
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
	p, err := a.publisher(from, nil, &trustFlags{site: names}, memoryFlags{})
	if err != nil {
		return nil, err
	}
	m := &mirror.Mirror{Say: a.say, From: &p.Reader, To: &published.Reader{Registry: to, Now: now(), Say: a.say}}
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
