// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/rescue/letin"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

func restore(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "restore")
	var s source
	s.register(f)
	all := f.Bool("all", false, "yes, everything")
	protection := f.Bool("protection", false, "only let others write the kernel parameters that are protected, until the next run")
	if err := f.parse(a, args); err != nil {
		return err
	}
	switch {
	case *all && *protection:
		return cli.Usage("--all lifts protection, too", "--all and --protection exclude each other")
	case !*all && !*protection:
		return cli.Usage("to leave caisson's settings for now: caisson-agent restore --all", "restore undoes every setting: confirm with --all")
	}
	n, err := s.open(ctx, a, "restore", node.Open)
	if err != nil {
		return err
	}
	defer n.Close() // what was journaled is on disk already
	if *protection {
		return n.Lift()
	}
	if err := n.RestoreAll(ctx); err != nil {
		return err
	}
	a.say("the original values are back; the next apply sets the overlay's again")
	return nil
}

func printVersion(_ context.Context, a *app, args []string) error {
	if err := newFlags(a, "version").parse(a, args); err != nil {
		return err
	}
	return a.show(map[string]string{"version": version, "built": built}, func() {
		cli.Printf(a.out, "caisson-agent %s (%s)\n", version, built)
	})
}

// cleared is the output of clear -o json.
type cleared struct {
	Cleared []spec.Drift `json:"cleared"`
}

// clearQuarantine is clear [KIND[:KEY]].
func clearQuarantine(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "clear [KIND[:KEY]]")
	setting, args := word("", args)
	kind, key, named := strings.Cut(setting, ":")
	if err := f.parse(a, args); err != nil {
		return err
	}
	if named && key == "" {
		return cli.Usage("see 'caisson-agent status'", "there is no key after %q", kind+":")
	}
	return a.with(ctx, "clear", node.Open, func(n *node.Node) error {
		ended, err := n.Clear(kind, rules.PolicyKey(kind, key))
		if err != nil {
			return err
		}
		return a.show(cleared{spelled(ended)}, func() {
			for _, d := range spelled(ended) {
				a.say("%s %s is corrected again, by the service within seconds", d.Item, d.Key)
			}
			if len(ended) == 0 {
				a.say("nothing that matches is quarantined")
			}
		})
	})
}

// rescueKeys prints the key that sshd is to let root in by, where it is the one that was offered, and
// notes the connection that asks.
func (a *app) rescueKeys(offered string) error {
	o, up, err := letin.Now(a.root)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	line, by := letin.Key(o, up, self, offered)
	if line == "" {
		return nil
	}
	if err := letin.Note(a.root, os.Getppid(), by); err != nil {
		return err // nobody comes in whom nothing would end
	}
	cli.Printf(a.out, "%s", line)
	return nil
}

// rescueShell is a session that such a key began, or the shell on the console.
func (a *app) rescueShell(ctx context.Context, by string) error {
	code, err := letin.Session(ctx, a.root, by, func() time.Duration {
		o, up, err := letin.Now(a.root)
		if err != nil {
			return 0 // what cannot be read lets nobody in
		}
		return letin.Left(o, up, by)
	})
	if err == nil && code != 0 {
		os.Exit(code)
	}
	return err
}
