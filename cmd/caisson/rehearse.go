// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/rehearsal"
)

// rehearseFlags are the flags of rehearse: those of a try, and where the site is published.
type rehearseFlags struct {
	tryFlags
	from, layer string
	reach       access
	known       memoryFlags
	stating     stating
}

func (a *app) rehearseCommand() *cobra.Command {
	var f rehearseFlags
	c := verb("rehearse", cobra.MinimumNArgs(1), func(c *cobra.Command, names []string) error {
		return a.rehearse(c.Context(), f, names)
	})
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
	f.stating.flags(fs)
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
	if err := f.stating.open(a, w); err != nil {
		return err
	}
	from, to, err := rehearsal.Ends(ctx, w, f.node)
	if err != nil {
		return err
	}
	if to == nil && f.stating.key != nil {
		return cli.Usage("'caisson build --to' pushes it first",
			"a statement is about a layer in the registry, and that of the site is not there")
	}
	o, err := a.sandboxOptions(f.tryFlags, s, names[0])
	if err != nil {
		return err
	}
	o.Kept, o.Console = from, &consoleWriter{app: a}
	progress := a.progress()
	o.Build.Options.Progress = progress.event
	defer progress.close()
	box, err := sandbox.Open(ctx, s, f.node, o)
	if err != nil {
		return full(err, o.Dir, o.Build.Options.CacheDir)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	if why := box.Emulated(); why != nil {
		a.say("the processor is emulated, several times slower than by KVM: %v", why)
	}
	way := rehearsal.Options{Node: f.node, From: from, To: to, Checks: f.checks, Within: f.timeout,
		Say: func(step string) { a.say("%s", step) }}
	answer, err := rehearsal.Walk(ctx, box, way)
	if err != nil {
		return full(err, o.Dir)
	}
	shown := a.show(answer, func() { answer.Write(a.out) })
	return cmp.Or(shown, f.stating.state(ctx, a, box, answer, way), answer.Err())
}
