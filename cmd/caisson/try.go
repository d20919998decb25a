// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec/site"
)

// tryFlags are the flags of try.
type tryFlags struct {
	build   buildFlags
	node    string
	ssh     bool
	checks  []string
	memory  sandbox.MiB
	cards   int
	disk    bool
	iso     bool
	secure  bool
	boot    bootFlags
	secrets bool
	opening opening
	timeout time.Duration
}

func (a *app) tryCommand() *cobra.Command {
	var f tryFlags
	c := verb("try", func(c *cobra.Command, names []string) error { return a.try(c.Context(), f, names) })
	fs := c.Flags()
	f.machine(fs)
	fs.BoolVar(&f.ssh, "ssh", false, "log in as root")
	fs.BoolVar(&f.iso, "iso", false, "firmware (UEFI) starts the loader from the disc that 'caisson image' writes")
	fs.BoolVar(&f.secure, "secure-boot", false, "the firmware starts only what the site's boot key signs, which is "+
		"opened: the disc of --iso, or with --disk that disk")
	f.boot.flags(fs)
	fs.BoolVar(&f.secrets, "with-secrets", false, "open the node's secrets, as 'caisson publish' does, for a machine "+
		"with a state disk (as --disk); "+
		"without it the node has none, or with --disk placeholder values")
	f.opening.flags(fs)
	f.build.inputs(fs)
	fs.Lookup("cache").Usage += "; what try makes is in its directory try meanwhile"
	fs.BoolVar(&f.build.fast, "fast", true, "weaker compression; --fast=false makes the images that a build makes, for both to share")
	return c
}

// machine has the flags of a machine, and of what is asked of it.
func (f *tryFlags) machine(fs *pflag.FlagSet) {
	fs.StringVar(&f.node, "node", "", "`NAME` of the node")
	fs.StringArrayVar(&f.checks, "check", nil, "run `COMMAND` on the node as root, which must end with 0; may be given again")
	fs.Var(&f.memory, "memory", "`MIB` of memory of the machine, or as 2G (1024 and the size of the layer when 0)")
	fs.IntVar(&f.cards, "nics", 0, "at least `N` network cards, on one switch (those that the site names when 0)")
	fs.BoolVar(&f.disk, "disk", false, "with a state disk: an empty one where the site has nodes make theirs; else the "+
		"disk of 'caisson image', "+
		"from which firmware starts, where the layer has systemd-boot-efi")
	fs.DurationVar(&f.timeout, "timeout", 20*time.Minute, "how long it may take from power-on until the gates are decided, and each check")
}

// check refuses what no machine has.
func (f *tryFlags) check() error {
	switch {
	case f.memory > 0 && f.memory < 256:
		return cli.Usage("MiB, as in --memory 2048", "--memory %d is too little for any node", f.memory)
	case f.cards < 0 || f.cards > sandbox.MaxCards:
		return cli.Usage("", "--nics %d: a machine has 1 to %d cards", f.cards, sandbox.MaxCards)
	case slices.Contains(f.checks, ""):
		return cli.Usage("as in --check 'systemctl is-active nginx'", "--check is empty")
	case f.timeout <= 0:
		return cli.Usage("as in --timeout 30m", "--timeout %s is too short", f.timeout)
	}
	return nil
}

// boxOptions returns the flags' options of a machine.
func (a *app) boxOptions(f *tryFlags) (o sandbox.Options, err error) {
	if f.build.cache, err = builder.CacheDir(f.build.cache); err != nil {
		return o, err
	}
	cache, err := filepath.Abs(f.build.cache) // QEMU and apt run elsewhere
	return sandbox.Options{Dir: filepath.Join(cache, "try"), Tool: version, Now: now(), Memory: int(f.memory),
		Cards: f.cards, Disk: f.disk || f.secrets, ISO: f.iso}, err
}

func (a *app) try(ctx context.Context, f tryFlags, names []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	if f.node == "" {
		return cli.Usage("the site has "+plain.Some(s.Fleet().Names(), plain.Few), "--node says which node to boot")
	}
	if _, err := s.Overlay(f.node, ""); err != nil { // before anything is looked for
		return err
	}
	begun := time.Now()
	console := a.console()
	o, err := a.sandboxOptions(f, s, names[0])
	if err != nil {
		return err
	}
	o.Console = console
	if o.Key, err = a.sealFor(ctx, f, s); err != nil {
		return err
	}
	progress := a.progress()
	o.Build.Options.Progress = progress.Event
	box, err := sandbox.Open(ctx, s, f.node, o)
	progress.Close()
	if err != nil {
		return cli.Full(err, o.Dir, o.Build.Options.CacheDir)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	_ = a.sayEmulated(box) // the result has it
	switch road := box.Road(); road {
	case "kernel":
		if o.Disk && s.Bootstrap().NewStateDisk == nil {
			a.say("the machine is given its kernel: firmware starts a disk only where the layer has systemd-boot-efi (conf.apt.packages)")
		}
	default:
		a.say("firmware (UEFI) starts the loader from the machine's %s", road)
	}
	q := sandbox.Questions{Checks: f.checks, Within: f.timeout, Quote: func(said string) {
		if !a.json() {
			a.quote(said)
		}
	}}
	if f.ssh {
		q.Shell = func(ctx context.Context) error {
			console.Mute()
			a.say("logging in; the machine ends with the shell")
			return box.Shell(ctx, os.Stdin, a.out, a.err)
		}
	}
	result, err := box.Try(ctx, q)
	if err != nil {
		return cli.Full(err, o.Dir)
	}
	a.saySteps(result, time.Since(begun))
	return a.tried(result, f)
}

// sealFor seals the node's secrets, or such as are made up, to a key of this boot alone, and
// returns that; "" where the node needs none, or has no disk to keep it on.
func (a *app) sealFor(ctx context.Context, f tryFlags, s *site.Site) (key string, err error) {
	names, err := s.SecretsOf(f.node)
	if err != nil || len(names) == 0 {
		return "", err
	}
	if !f.disk && !f.secrets {
		a.say("the machine has no state disk, so it has none of the node's secrets (%s): --disk uses placeholder values, "+
			"--with-secrets opens them", plain.Some(names, plain.Few))
		return "", nil
	}
	sealer, key, err := seal.Apart(s, f.node, !f.secrets)
	if err != nil {
		return "", err
	}
	sealer.Timeout = f.opening.within
	if err := f.opening.identify(sealer); err != nil {
		return "", err
	}
	if !f.secrets {
		a.say("the node's secrets (%s) have placeholder values: --with-secrets opens them", plain.Some(names, plain.Few))
	}
	return key, sealer.Seal(ctx, []string{f.node})
}

// sandboxOptions returns the flags' options of a sandbox, without its output.
func (a *app) sandboxOptions(f tryFlags, s *site.Site, file string) (o sandbox.Options, err error) {
	agents, err := release.Agents(s, f.build.agent)
	if err != nil {
		return o, err
	}
	if o, err = a.boxOptions(&f); err != nil {
		return o, err
	}
	var boot builder.BootKey
	if f.secure {
		o.Secure = true
		if boot, err = f.boot.key(a, s); err != nil {
			return o, err
		}
		if boot == nil {
			return o, cli.Usage("'caisson keys generate --boot keys/boot' beside the site makes it; docs/keys.md",
				"--secure-boot: the site has no boot key")
		}
	}
	locks, err := readLocks(f.build, file)
	if err != nil {
		return o, err
	}
	source, err := a.source(f.build.cache)
	if err != nil {
		return o, err
	}
	o.Build = release.Build{Locks: locks, Agents: agents, Options: builder.Options{Boot: boot, CacheDir: f.build.cache,
		Fast: f.build.fast, Debs: f.build.debs, Unsigned: f.build.unsigned}}
	o.First = func(ctx context.Context, r *registry.Registry) error { return source.Push(ctx, r, s) }
	return o, nil
}

// sayEmulated says why a machine is slow, where it is, and returns that.
func (a *app) sayEmulated(box *sandbox.Box) error {
	why := box.Emulated()
	if why != nil {
		a.say("the processor is emulated, several times slower than by KVM: %v", why)
	}
	return why
}

// saySteps says what took how long.
func (a *app) saySteps(r *sandbox.Trial, took time.Duration) {
	parts := plain.Each(r.Steps, func(s sandbox.Step) string {
		return plain.Sprintf("%s %.0f s (%.0f of a processor)", s.Name, s.Seconds, s.ProcessorSeconds)
	})
	a.say("took %.0f s: %s; the machine had %.0f s of a processor", took.Seconds(), strings.Join(parts, ", "), r.ProcessorSeconds)
}

// tried prints the result, and returns the error that has its exit code.
func (a *app) tried(r *sandbox.Trial, f tryFlags) error {
	err := a.show(r, func() {
		if f.ssh && len(f.checks) == 0 && r.Passed {
			return
		}
		how := func(passed bool) string { return map[bool]string{true: "passed", false: "FAILED"}[passed] }
		what := r.Reason
		if r.Passed {
			what = "health ok"
			if len(r.Gates) > 0 {
				what += ", gates " + plain.Some(r.Gates, plain.Few)
			}
			if r.SecureBoot {
				what += ", secure boot"
			}
		}
		cli.Printf(a.out, "%s\t%s\t%s\n", how(r.Passed), r.Node, plain.Line(what))
		for _, c := range r.Checks {
			cli.Printf(a.out, "%s\tcheck\t%s\n", how(c.Passed), c.Command)
			if !c.Passed {
				a.say("%s ended with %d", c.Command, c.Exit)
			}
			a.quote(c.Output)
		}
		for _, unit := range r.FailedUnits {
			a.say("unit %s has failed on the node", unit)
		}
	})
	if err == nil && !r.Passed {
		return cli.ErrFailed
	}
	return err
}
