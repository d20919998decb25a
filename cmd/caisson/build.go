// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site/plan"
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
	agents, err := release.Agents(s, f.agent)
	if err != nil {
		return err
	}
	if f.cache, err = builder.CacheDir(f.cache); err != nil {
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
	on, err := a.siteLayers(ctx, reg, s, names[0])
	if err != nil {
		return err
	}
	if err := on.MayPush(&f.keys); err != nil {
		return err
	}
	places := []string{f.cache}
	if ref := reg.Ref(); ref.IsLayout() {
		places = append(places, ref.Layout)
	}
	built, err := a.bake(ctx, f, on, release.Build{Agents: agents}, names[0])
	if err != nil {
		return cli.Full(err, places...)
	}
	p, err := on.Pusher(&f.keys) // not while packages' scripts run
	if err != nil {
		return err
	}
	progress := a.progress()
	p.Tool, p.Now, p.Progress = version, now(), progress.Event
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

// bake builds every variant and shows how it goes.
func (a *app) bake(ctx context.Context, f buildFlags, on policy.Layers, how release.Build, file string) (*release.Built, error) {
	boot, err := f.keys.BootKey(on.Site)
	if err != nil {
		return nil, err
	}
	if how.Before, err = on.Before(ctx, f.previous, f.registry.existing); err != nil {
		return nil, err
	}
	if how.Locks, err = readLocks(f, file); err != nil {
		return nil, err
	}
	progress := a.progress()
	how.Options = builder.Options{Boot: boot, CacheDir: f.cache, Fast: f.fast, Debs: f.debs, Unsigned: f.unsigned, Progress: progress.Event}
	built, err := release.Bake(ctx, on.Site, how)
	var again *release.Built
	if err == nil && f.twice {
		how.Options.Again = true
		again, err = release.Bake(ctx, on.Site, how)
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

// locked is the output of lock -o json.
type locked struct {
	File     string                   `json:"file"`
	Written  bool                     `json:"written"`
	Variants []packages.LockedVariant `json:"variants"`
}

// locking is a lock of a site's packages: the flags.
type locking struct {
	release.Locking
	name       string // of the file
	update     bool
	advisories advisoryFlag
}

func (a *app) lockCommand() *cobra.Command {
	var x locking
	c := verb("lock", func(c *cobra.Command, names []string) error {
		if x.update && x.Missing {
			return cli.Usage("--update takes all, --missing what is not locked yet", "give either --update or --missing")
		}
		x.name = cmp.Or(x.name, lockName(names[0]))
		return x.run(c.Context(), a, names)
	})
	c.Flags().StringVar(&x.name, "lock", "", "lock file (caisson.lock beside the site when empty)")
	c.Flags().StringVar(&x.Cache, "cache", "", "directory kept between builds "+cacheDefault)
	c.Flags().BoolVar(&x.update, "update", false, "take what the archives have now")
	x.advisories.flag(c.Flags())
	c.Flags().BoolVar(&x.Missing, "missing", false, "take it for variants alone that are not locked yet")
	return c
}

func (x *locking) run(ctx context.Context, a *app, names []string) (err error) {
	if x.Cache, err = builder.CacheDir(x.Cache); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	old, err := packages.ReadLock(x.name)
	if err != nil {
		return err
	}
	if by, err := x.advisories.open(old); err != nil {
		return err
	} else if by != nil {
		x.Advise = by.Locks
	}
	write := x.update || x.Missing || old == nil
	if write {
		if err := cli.Writable("--lock", x.name); err != nil {
			return err
		}
	}
	fresh, found, err := release.Lock(ctx, s, old, x.Locking)
	if err != nil {
		return err
	}
	out := locked{File: x.name, Written: write, Variants: found}
	if write {
		if err := fresh.Write(x.name); err != nil {
			return err
		}
	}
	err = printEach(a, out, out.Variants)
	if write {
		if err == nil {
			a.say("wrote %s", x.name)
		}
		return err
	}
	return cmp.Or(err, drift(slices.ContainsFunc(found, packages.LockedVariant.Differs)))
}

// readLocks returns the lock that a build is held to, nil for the newest packages.
func readLocks(f buildFlags, file string) (*packages.LockFile, error) {
	if f.fresh {
		return nil, nil
	}
	name := cmp.Or(f.lock, lockName(file))
	l, err := packages.ReadLock(name)
	if err == nil && l == nil && f.lock != "" {
		err = fmt.Errorf("lock %s: no such file", name)
	}
	return l, err
}

// lockName is the lock beside a site.
func lockName(file string) string { return filepath.Join(filepath.Dir(file), "caisson.lock") }

// advisoryFlag names a file of Debian's security tracker.
type advisoryFlag string

func (f *advisoryFlag) flag(fs *pflag.FlagSet) {
	fs.StringVar((*string)(f), "advisories", "", "`FILE` of Debian's security tracker (its data/json): say which "+
		"advisories the packages close, and how many are open")
}

// open reads the file, nil where none was named.
func (f advisoryFlag) open(lock *packages.LockFile) (*preview.Advice, error) {
	if f == "" {
		return nil, nil
	}
	return preview.OpenAdvice(string(f), lock)
}

// beside reads the file, for the lock beside a site.
func (f advisoryFlag) beside(site []string) (*preview.Advice, error) {
	lock, err := packages.ReadLock(lockName(besideName(site)))
	if err != nil {
		return nil, err
	}
	return f.open(lock)
}

// layers is beside for what compares layers.
func (f advisoryFlag) layers(site []string) (plan.Advise, error) {
	if f == "" {
		return nil, nil
	}
	by, err := f.beside(site)
	if err != nil {
		return nil, err
	}
	return by.Layers, nil
}

// cacheDefault says in a flag's help what [builder.CacheDir] does.
const cacheDefault = "(" + builder.SystemCache + " when empty, or ~/.cache/caisson for users who may not write there)"
