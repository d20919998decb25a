// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/caisson-os/caisson/sandbox/culprit"
	"github.com/caisson-os/caisson/sandbox/rehearsal"
	"github.com/caisson-os/caisson/spec"
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
	if road := box.Road(); road != "kernel" {
		a.say("firmware (UEFI) starts the loader from the machine's %s", road)
	} else if o.Disk && s.Bootstrap().NewStateDisk == nil {
		a.say("the machine is given its kernel: firmware starts a disk only where the layer has systemd-boot-efi (conf.apt.packages)")
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
	a.say("%s", result.Took(time.Since(begun)))
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

// rehearseFlags are the flags of rehearse: those of a try, and where the site is published.
type rehearseFlags struct {
	tryFlags
	from, layer string
	reach       access
	known       memoryFlags
	stating     rehearsal.Stating
}

func (a *app) rehearseCommand() *cobra.Command {
	var f rehearseFlags
	c := verb("rehearse", func(c *cobra.Command, names []string) error { return a.rehearse(c.Context(), f, names) })
	fs := c.Flags()
	fs.StringVar(&f.node, "node", "", "`NAME` of the node")
	fs.StringArrayVar(&f.checks, "check", nil, "run `COMMAND` on the changed node as root, which must end with 0; may be given again")
	fs.StringVar(&f.from, "from", "", "where the site is published; the site's registry when absent")
	fs.StringVar(&f.layer, "layer", "current", "the layer that would be published: a `TAG`, or the digest of its index or manifest")
	fs.Var(&f.memory, "memory", "`MIB` of memory of the machine, or as 2G (1024 and the size of the layer when 0)")
	fs.BoolVar(&f.disk, "disk", false, "with a state disk, as 'caisson try --disk'")
	fs.DurationVar(&f.timeout, "timeout", 20*time.Minute, "how long each part of the way may take")
	f.build.inputs(fs)
	fs.BoolVar(&f.build.fast, "fast", true, "weaker compression of a layer that is built")
	fs.StringVar(&f.stating.File, "statement", "", "write what was found to `FILE`, as a signed statement, whatever it is")
	fs.BoolVar(&f.stating.Push, "push", false,
		"attach that statement to the layer in the registry, where a Rollout with 'rehearsed' looks for it")
	fs.StringVar(&f.stating.Attest, "attest-key", "", "attestation key that signs it: `FILE`, env:NAME, fd:N or command:CMD (the "+
		"private key beside the site's public one when empty)")
	passphraseFlag(fs, &f.stating.Passphrase)
	f.known.looking(fs)
	f.reach.flags(a, fs)
	return c
}

func (a *app) rehearse(ctx context.Context, f rehearseFlags, names []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	if f.node == "" {
		return cli.Usage("as in --node node1", "--node says which node to rehearse")
	}
	if _, err := s.Overlay(f.node, ""); err != nil { // before anything is looked for
		return err
	}
	f.known.remember = cmp.Or(f.known.remember, memoryName(besideName(names)))
	w, err := a.preview(s, cmp.Or(f.from, s.Registry()), f.layer, f.reach, f.known)
	if err != nil {
		return err
	}
	f.stating.Version, f.stating.Now, f.stating.Say = version, now, a.say
	if err := f.stating.Open(w); err != nil {
		return err
	}
	then := func(commit string) []spec.BootNetwork { return a.siteAt(ctx, s, names, commit).Boot }
	from, to, err := rehearsal.Ends(ctx, w, f.node, then)
	if err != nil {
		return err
	}
	if err := f.stating.Check(to); err != nil {
		return err
	}
	o, err := a.sandboxOptions(f.tryFlags, s, names[0])
	if err != nil {
		return err
	}
	o.Kept, o.Console = from, a.console()
	progress := a.progress()
	o.Build.Options.Progress = progress.Event
	defer progress.Close()
	box, err := sandbox.Open(ctx, s, f.node, o)
	if err != nil {
		return cli.Full(err, o.Dir, o.Build.Options.CacheDir)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	_ = a.sayEmulated(box) // it is slow, and works
	way := rehearsal.Options{Node: f.node, From: from, To: to, Checks: f.checks, Within: f.timeout,
		Say: func(step string) { a.say("%s", step) }}
	answer, err := rehearsal.Walk(ctx, box, way)
	if err != nil {
		return cli.Full(err, o.Dir)
	}
	shown := a.print(answer, nil)
	return cmp.Or(shown, f.stating.State(ctx, box, answer, way), answer.Err())
}

// siteAt returns what a site was at a commit, and says where that cannot be had and would count.
func (a *app) siteAt(ctx context.Context, s *site.Site, names []string, commit string) (past culprit.Past) {
	err := errors.New("the history names no commit of what was published")
	switch {
	case strings.HasSuffix(commit, "+"):
		err = fmt.Errorf("what was published was not yet committed after %s", strings.TrimSuffix(commit, "+"))
	case commit != "":
		past, err = culprit.ReadPast(ctx, s.Dir(), names, commit, func(names ...string) (*site.Site, error) {
			s, found := parseSite(time.Time{}, names...)
			return s, found.Err()
		})
	}
	if err != nil && len(s.Bootstrap().Network) > 0 {
		a.say("the machine is plugged in as bootNetwork of the site is now: %v", err)
	}
	return past
}

// bisectFlags are the flags of bisect.
type bisectFlags struct {
	try             tryFlags
	look            looking
	from, good, bad string
	most            int
}

func (a *app) bisectCommand() *cobra.Command {
	var f bisectFlags
	c := verb("bisect", func(c *cobra.Command, names []string) error { return a.bisect(c.Context(), f, names) })
	fs := c.Flags()
	fs.StringVar(&f.from, "from", "", "where the site is published; the site's registry when absent")
	fs.StringVar(&f.good, "good", "", "a generation, `GEN`, with which the check passes")
	fs.StringVar(&f.bad, "bad", "", "a generation, `GEN`, with which it does not; the newest when absent")
	fs.IntVar(&f.most, "most", 40, "boot at most `N` machines; the same command goes on")
	f.try.machine(fs)
	fs.StringVar(&f.try.build.cache, "cache", "", "directory kept between builds "+cacheDefault)
	fs.StringVar(&f.try.build.debs, "debs", "", "directory of kept package files: used first, and filled")
	fs.StringVar(&f.look.known.remember, "remember", "",
		"`FILE` that remembers what was published (caisson.memory beside the site when empty)")
	f.look.reach.flags(a, fs)
	return c
}

func (a *app) bisect(ctx context.Context, f bisectFlags, names []string) error {
	switch {
	case f.try.node == "" || f.good == "":
		return cli.Usage("'caisson history REF --node NAME' lists what a node had",
			"--node says which node, and --good a generation with which it was well")
	case f.most < 1:
		return cli.Usage("", "--most %d: it takes a machine at least", f.most)
	}
	if err := f.try.check(); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	n := &culprit.Node{Name: f.try.node, Site: s, Checks: f.try.checks, Within: f.try.timeout,
		Then: func(commit string) culprit.Past { return a.siteAt(ctx, s, names, commit) }}
	if n.Box, err = a.boxOptions(&f.try); err != nil {
		return err
	}
	n.Box.Build.Options = builder.Options{CacheDir: f.try.build.cache, Fast: true, Debs: f.try.build.debs, Private: s.Layer().PrivateKeys()}
	if n.Box.Build.Options.SiteDir, err = filepath.Abs(s.Dir()); err != nil { // apt takes no relative keyring
		return err
	}
	f.look.whom.site, f.look.known.remember = names, cmp.Or(f.look.known.remember, memoryName(names[0]))
	ref := cmp.Or(f.from, s.Registry())
	if n.Fleet, err = f.look.open(ctx, a, ref); err != nil {
		return err
	}
	if n.From, err = f.look.reach.existing(ref); err != nil {
		return err
	}
	n.Box.Console = io.Discard // of ten machines nobody reads it
	said := false
	n.Tell = func(box *sandbox.Box) { said = said || a.sayEmulated(box) != nil }
	r, err := n.Find(ctx, culprit.Question{Good: f.good, Bad: f.bad, Cache: f.try.build.cache, Most: f.most}, a.say)
	return a.print(r, cli.Full(err, n.Box.Dir))
}
