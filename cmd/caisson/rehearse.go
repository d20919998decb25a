// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/culprit"
	"github.com/caisson-os/caisson/sandbox/rehearsal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

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
	fs.BoolVar(&f.stating.Push, "push", false, "attach that statement to the layer in the registry, where a Rollout with 'rehearsed' looks for it")
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
	if err != nil {
		return cli.Full(err, n.Box.Dir)
	}
	return a.print(r, nil)
}
