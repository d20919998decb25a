// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
)

// buildFlags are the flags of build.
type buildFlags struct {
	registry access
	to       string
	keys     release.KeyFiles
	named    bool // the keys, or that there are none
	version  string

	bootNamed bool // likewise the boot key
	agent     []string
	cache     string
	lock      string
	debs      string
	unsigned  []string
	fast      bool
	fresh     bool
	twice     bool
	previous  string
}

func (a *app) buildCommand() *cobra.Command {
	var f buildFlags
	c := verb("build", func(c *cobra.Command, names []string) error {
		f.named, f.bootNamed = c.Flags().Changed("key") || c.Flags().Changed("attest-key"), c.Flags().Changed("boot-key")
		return a.build(c.Context(), f, names)
	})
	f.registry.flags(a, c.Flags())
	c.Flags().StringVar(&f.to, "to", "", "registry or layout to push to (the site's own when empty)")
	c.Flags().StringVar(&f.keys.Release, "key", "", "release key that signs the layers: `FILE`, env:NAME, fd:N or command:CMD")
	c.Flags().StringVar(&f.keys.Attest, "attest-key", "",
		"attestation key that signs SBOM and provenance: `FILE`, env:NAME, fd:N or command:CMD")
	c.Flags().StringVar(&f.keys.Boot, "boot-key", "",
		"boot key that signs the kernel and modules made for it: `FILE`, env:NAME, fd:N or command:CMD")
	passphraseFlag(c.Flags(), &f.keys.Passphrase)
	c.Flags().StringVar(&f.version, "version", "", "version to tag (the date of the packages and a hash when empty)")
	f.inputs(c.Flags())
	c.Flags().BoolVar(&f.fast, "fast", false, "weaker compression, for development")
	c.Flags().BoolVar(&f.twice, "twice", false, "build a second time, under another host name, and name each file that "+
		"differs: it may be one machine's")
	c.Flags().StringVar(&f.previous, "previous", "", "LAYER whose account ledger goes on (the current one of --to when empty)")
	return c
}

// inputs adds the flags that say what layers are made of.
func (x *buildFlags) inputs(f *pflag.FlagSet) {
	f.StringArrayVar(&x.agent, "agent", nil, "static caisson-agent binary, once for each architecture (caisson-agent or "+
		"caisson-agent-ARCH beside this program when empty)")
	f.StringVar(&x.cache, "cache", "", "directory kept between builds "+cacheDefault)
	f.StringVar(&x.lock, "lock", "", "lock file (caisson.lock beside the site when empty)")
	f.StringVar(&x.debs, "debs", "", "directory of kept package files: used first, and filled")
	f.StringArrayVar(&x.unsigned, "unsigned", nil, "take the package `NAME` of the lock, or all, though no index that an "+
		"archive signs has the file")
	f.BoolVar(&x.fresh, "no-lock", false, "take the newest packages even when there is a lock")
}

func (a *app) build(ctx context.Context, f buildFlags, names []string) error {
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	if _, err := s.Variants(); err != nil {
		return err
	}
	f.to = cmp.Or(f.to, s.Registry())
	agents, err := f.agents(s)
	if err != nil {
		return err
	}
	if f.cache, err = cacheDir(f.cache); err != nil {
		return err
	}
	if f.version != "" && (!oci.ValidTag(f.version) || release.ReservedTag(f.version)) {
		return cli.Usage("letters, digits, and . _ - within, at most 128; current and keep-… are caisson's own",
			"--version: %q is not a version", f.version)
	}
	if !f.named {
		if took := f.keys.Beside(s); len(took) > 0 {
			a.say("signing with %s", strings.Join(took, ", "))
		}
	}
	if !f.bootNamed && f.keys.BootBeside(s) {
		a.say("signing the kernel with %s", f.keys.Boot)
	}
	warning, err := f.keys.Check(s)
	if err != nil {
		return err
	}
	if warning != "" && !a.json() {
		a.say("warning: %s", warning)
	}
	reg, err := f.registry.open(f.to)
	if err != nil {
		return err
	}
	beside, err := a.besideSite(reg, names[0])
	if err != nil {
		return err
	}
	trusted, noKeys := policy.Release(s)
	if trusted, err = beside.Newest(ctx, trusted); err != nil {
		return err
	}
	if public, err := keys.PublicOf(f.keys.Release); err == nil && public != nil { // else the key itself decides, after the build
		if err := trusted.MayRelease(public); err != nil {
			return err
		}
	}
	places := []string{f.cache}
	if ref := reg.Ref(); ref.IsLayout() {
		places = append(places, ref.Layout)
	}
	built, err := a.bake(ctx, f, s, going{beside, trusted, noKeys, agents}, names[0])
	if err != nil {
		return cli.Full(err, places...)
	}
	p, err := f.openKeys(s, trusted) // not while packages' scripts run
	if err != nil {
		return err
	}
	if noKeys == nil { // else the builder's own key counts
		p.Trusted = trusted.Release
	}
	progress := a.progress()
	seen, _ := beside.Memory.At(reg.Ref().String())
	p.Registry, p.Tool, p.Now, p.Seen, p.Progress = reg, version, now(), seen.Layers.IssuedAt, progress.Event
	out, err := p.PushAll(ctx, s.Name(), cmp.Or(f.version, built.Version()), built)
	progress.Close()
	if err != nil {
		return cli.Full(err, places...)
	}
	return a.show(out, func() {
		for _, l := range out.Layers {
			cli.Printf(a.out, "%s  %s\n", l.Digest, l.Variant)
		}
		a.say("pushed %s as %s:%s", plain.Count(len(out.Layers), "layer"), oci.RepoLayer, out.Version)
		plan, publish := strings.Join(names, " "), strings.Join(names, " ")
		if f.to != s.Registry() {
			plan, publish = plan+" --from "+f.to, publish+" --to "+f.to
		}
		a.say("no node has it yet: 'caisson plan %s' shows what it changes, 'caisson publish %s' gives it to the nodes", plan, publish)
	})
}

// openKeys opens the keys that sign what was built.
func (x *buildFlags) openKeys(s *site.Site, trusted publish.Policy) (p release.Pusher, err error) {
	if p.Release, p.Attest, err = x.keys.Open(s); err != nil || p.Release == nil {
		return p, err
	}
	public, err := sign.NewVerifier(p.Release.Public())
	if err != nil {
		return p, err
	}
	return p, trusted.MayRelease(public)
}

// going holds what a build goes on from: the registry, and whose layers count there.
type going struct {
	*publish.Publisher
	trusted publish.Policy
	noKeys  error             // why the site's release keys cannot be read, which a digest does not need
	agents  map[string]string // by architecture
}

// bake builds every variant and shows how it goes.
func (a *app) bake(ctx context.Context, f buildFlags, s *site.Site, on going, file string) (*release.Built, error) {
	boot, err := f.keys.BootKey(s)
	if err != nil {
		return nil, err
	}
	before, err := a.before(ctx, f, s, on)
	if err != nil {
		return nil, err
	}
	locks, err := readLocks(f, file)
	if err != nil {
		return nil, err
	}
	progress := a.progress()
	how := release.Build{Locks: locks, Before: before, Agents: on.agents, Options: builder.Options{
		Boot: boot, CacheDir: f.cache, Fast: f.fast, Debs: f.debs, Unsigned: f.unsigned, Progress: progress.Event}}
	built, err := release.Bake(ctx, s, how)
	var again *release.Built
	if err == nil && f.twice {
		how.Options.Again = true
		again, err = release.Bake(ctx, s, how)
	}
	progress.Close()
	if err != nil || again == nil {
		return built, err
	}
	for i, r := range built.Results {
		differ, err := builder.Differ(r, again.Results[i])
		if err != nil {
			return nil, fmt.Errorf("compare two builds: %w", err)
		}
		a.say("variant %s: two builds differ in %s", r.Layer.Variant, plain.Count(len(differ), "file"))
		for _, name := range differ {
			cli.Printf(a.err, "  %s\n", name)
		}
	}
	return built, nil
}

// before returns what to go on from, the account ledger foremost, as a release key of the
// site signed it: its author gives users the numbers of others, and with them
// their files. A registry that holds no layer yet begins a new one. A digest is as good as
// a signature. Numbers that the layers where it is pushed to have given stay given,
// whatever is named.
func (a *app) before(ctx context.Context, f buildFlags, s *site.Site, on going) (b release.Before, err error) {
	current, err := on.at(ctx, s, release.Current)
	none := errors.Is(err, oci.ErrNotFound) && refusal.Of(err) == "" // nothing was ever built there
	switch {
	case none && f.previous == "":
		return b, nil
	case f.previous == "":
		return current, cli.WithHint(err, "the account ledger comes from layers that a release key of the site signed; "+
			"--previous REF@sha256:DIGEST names others")
	case err != nil && !none && on.noKeys == nil && refusal.Of(err) == "":
		return b, err
	}
	ref, reference, err := release.ParseName(f.previous)
	if err != nil {
		return b, err
	}
	there := *on.Publisher
	if there.Registry, err = f.registry.existing(ref); err != nil {
		return b, err
	}
	on.Publisher = &there
	if b, err = on.at(ctx, s, reference); err != nil {
		return b, fmt.Errorf("--previous: %w", err)
	}
	b.Ledger, err = release.Join(current.Ledger, b.Ledger)
	return b, err
}

// at reads what to go on from at one place.
func (on going) at(ctx context.Context, s *site.Site, reference string) (b release.Before, err error) {
	trusted := on.trusted
	var set *release.Set
	if oci.ValidDigest(reference) {
		trusted.Release = nil
		set, err = release.Find(ctx, on.Registry, reference)
	} else {
		set, err = on.Set(ctx, trusted, reference)
		if on.noKeys != nil && !errors.Is(err, oci.ErrNotFound) {
			return b, on.noKeys
		}
	}
	if err != nil {
		return b, err
	}
	b.Layers = set.Layers
	b.Ledger, err = set.Accounts(ctx, s.Name(), trusted.Release)
	return b, err
}

// agents finds the agents for the layers of a site, those beside this program or on PATH where none is named.
func (x *buildFlags) agents(s *site.Site) (map[string]string, error) {
	variants, err := s.Variants()
	if err != nil {
		return nil, err
	}
	found, dir := map[string]string{}, ""
	if self, err := os.Executable(); err == nil { // else there is PATH
		dir = filepath.Dir(self)
	}
	for _, v := range variants {
		if found[v.Recipe.Arch], err = boot.FindAgent(x.agent, dir, v.Recipe.Arch); err != nil {
			return nil, err
		}
	}
	return found, nil
}
