// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/program"
	"github.com/caisson-os/caisson/bootagent/program/bootdisk"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// installed is the output of install -o json.
type installed struct {
	Disk   string   `json:"disk"`
	Was    []string `json:"was"`    // what was on it, a line a partition
	Loader int64    `json:"loader"` // its number
}

func install(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "install")
	name := f.String("disk", "", "`disk` to boot from: path, serial number or WWN")
	yes := f.Bool("yes", false, "do not ask")
	wipe := f.Bool("wipe", false, "erase what is on the disk")
	if err := a.parse(f, args); err != nil {
		return err
	}
	if *name == "" {
		return cli.Usage("'lsblk -o NAME,SIZE,SERIAL,WWN' shows them", "install needs --disk")
	}
	i, err := bootdisk.Install(ctx, a.options("install"), *name)
	if err != nil {
		return err
	}
	was := i.Target.Describe()
	for _, line := range was {
		a.say("%s", line)
	}
	if err := i.Check(*wipe); err != nil {
		return err
	}
	if !*yes {
		if err := a.confirms(i); err != nil {
			return err
		}
	}
	if err := i.Run(); err != nil {
		return err
	}
	return a.show(installed{i.Target.Device, was, i.Loader.Number}, func() {
		cli.Printf(a.out, "%s starts loader %d; have the firmware's boot order begin with it\n", i.Target.Device, i.Loader.Number)
	})
}

// confirms asks the person at the terminal.
func (a *app) confirms(i *bootdisk.Installation) error {
	what := "Erase all of it and install loader"
	if i.Own() {
		what = "Leave the state and add loader"
	}
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil { // no terminal
		return cli.Usage("--yes does it without asking",
			"writing to %s needs confirmation, and standard input is not a terminal", i.Target.Device)
	}
	cli.Printf(a.err, "%s %d to %s? [y/N]: ", what, i.Loader.Number, i.Target.Device)
	if lines := bufio.NewScanner(os.Stdin); lines.Scan() && strings.EqualFold(strings.TrimSpace(lines.Text()), "y") {
		return nil
	}
	return errors.New("nothing was written")
}

func reboot(ctx context.Context, a *app) error {
	return a.with(ctx, "reboot", node.Open, func(n *node.Node) error {
		if a.root != "" {
			return errors.New("reboot: this is the root of a test; its machine is not started over")
		}
		class, why, err := n.Reboot(ctx)
		if err == nil {
			a.say("%s: %s", class, why)
		}
		return err
	})
}

func enrollHost(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "enroll")
	var s source
	s.register(f)
	site := f.String("site", "", "`file` site.json with trusted keys and the registry, instead of --from, --fleet and --key")
	replace := f.Bool("replace", false, "leave the fleet that this host is enrolled in")
	if err := a.parse(f, args); err != nil {
		return err
	}
	b, err := s.bootstrap()
	switch {
	case err != nil:
		return err
	case b != nil && *site != "":
		return cli.Usage("give one of them", "--site and --from exclude each other")
	case b == nil && *site == "":
		return cli.Usage("for example: caisson-agent enroll --from registry.example:5000/metal-a --fleet metal-a --key "+
			"operator.pub", "enroll needs --from, --fleet and --key, or --site")
	case b == nil:
		if b, err = a.readSite(*site); err != nil {
			return err
		}
	}
	if s.node != "" {
		b.Node = s.node
	}
	found, err := program.EnrollHost(ctx, a.options("enroll"), *b, *replace)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"node": found.Overlay.Node, "fleet": found.Overlay.Fleet, "generation": found.Generation.Generation}, func() {
		cli.Printf(a.out, "enrolled as node %s of fleet %s; its generation %d is applied by 'caisson-agent apply', once, or "+
			"'caisson-agent run', from now on\n",
			found.Overlay.Node, found.Overlay.Fleet, found.Generation.Generation)
	})
}

func (a *app) readSite(name string) (*spec.Bootstrap, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	b, notes, err := spec.DecodeBootstrap(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	for _, note := range notes {
		a.say("%s: %s", name, note)
	}
	return &b, nil
}

func restore(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "restore")
	var s source
	s.register(f)
	all := f.Bool("all", false, "yes, everything")
	protection := f.Bool("protection", false, "only let others write the kernel parameters that are protected, until the next run")
	if err := a.parse(f, args); err != nil {
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

func printVersion(_ context.Context, a *app) error {
	return a.show(map[string]string{"version": version, "built": built}, func() {
		cli.Printf(a.out, "caisson-agent %s (%s)\n", version, built)
	})
}

// clearQuarantine is clear [KIND[:KEY]].
func clearQuarantine(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "clear [KIND[:KEY]]")
	setting, args := word("", args)
	kind, key, named := strings.Cut(setting, ":")
	if err := a.parse(f, args); err != nil {
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
		return a.show(map[string]any{"cleared": screen.Spelled(ended)}, func() {
			for _, d := range screen.Spelled(ended) {
				a.say("%s %s is corrected again, by the service within seconds", d.Item, d.Key)
			}
			if len(ended) == 0 {
				a.say("nothing that matches is quarantined")
			}
		})
	})
}
