// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

func status(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "status")
	var script string
	f.StringVar(&script, "logs", "", "print the last run of the script of this `name`, and what it printed")
	watch := f.Bool("watch", false, "print it again every two seconds, until a signal")
	steps := f.Bool("trace", false, "print how long each step of the boot and of the agent's runs took")
	if err := a.parse(f, args); err != nil {
		return err
	}
	switch {
	case *watch && *steps:
		return cli.Usage("give one of them", "--watch and --trace exclude each other")
	case script != "" && (*watch || *steps):
		return cli.Usage("give one of them", "--logs excludes --watch and --trace")
	case script != "":
		return a.printLogs(ctx, script)
	case *steps:
		return printRead(ctx, a, "status", (*node.Node).Trace, func(t *spec.Trace) { screen.Trace(a.out, t) })
	case *watch:
		return a.watch(ctx, watchEvery, func() error { return a.printNow(ctx) })
	}
	return a.printNow(ctx)
}

// opening opens a node to write to it, or only to read.
type opening func(context.Context, session.Options, *spec.Bootstrap) (*node.Node, error)

// with opens the node for what a verb does.
func (a *app) with(ctx context.Context, verb string, open opening, do func(*node.Node) error) error {
	n, err := open(ctx, a.options(verb), nil)
	if err != nil {
		return err
	}
	defer n.Close() // what was noted is on disk already
	return do(n)
}

// printRead prints what ask finds out about the node, and writes nothing to it.
func printRead[T any](ctx context.Context, a *app, verb string, ask func(*node.Node) (T, error), text func(T)) error {
	return a.with(ctx, verb, node.Read, func(n *node.Node) error {
		found, err := ask(n)
		if err != nil {
			return err
		}
		return a.show(found, func() { text(found) })
	})
}

// printNow looks at the node and prints what it is.
func (a *app) printNow(ctx context.Context) error {
	return a.with(ctx, "status", node.Read, func(n *node.Node) error {
		st, err := n.Status(ctx)
		if err == nil {
			err = a.showStatus(st)
		}
		if err == nil && slices.ContainsFunc(st.Drift, screen.Matters) {
			return cli.ErrDrift
		}
		return err
	})
}

func (a *app) showStatus(st *spec.Status) error {
	shown := *st
	shown.Drift = screen.Spelled(st.Drift)
	return a.show(shown, func() { screen.Status(a.out, st) })
}

// printLogs prints the last run of a script and its output.
func (a *app) printLogs(ctx context.Context, script string) error {
	return a.with(ctx, "status", node.Read, func(n *node.Node) error {
		last, err := n.LastRun(script)
		if err != nil {
			return err
		}
		return a.show(last, func() {
			ended := ""
			if !last.End.IsZero() {
				ended = ", ended " + screen.Moment(last.End)
			}
			cli.Printf(a.out, "%s: %s (started %s%s)\n", last.Name, last.Result, screen.Moment(last.Start), ended)
			for line := range strings.Lines(last.Output) {
				cli.Printf(a.out, "  %s\n", strings.TrimRight(line, "\r\n"))
			}
		})
	})
}

// printReport prints what the service tells of its last run.
func printReport(ctx context.Context, a *app) error {
	return printRead(ctx, a, "report", func(n *node.Node) (node.Told, error) { return n.Told(ctx) },
		func(t node.Told) { screen.Report(a.out, t.Report, t.To, t.Key, t.Waiting) })
}

const (
	watchEvery = 2 * time.Second
	clear      = "\x1b[H\x1b[2J" // of a terminal, see console_codes(4)
)

// watch prints again and again until a signal, on a terminal from its top. Drift is no
// error then, and no other error is the end: what is watched may be about to mend.
func (a *app) watch(ctx context.Context, every time.Duration, look func() error) error {
	onTerminal := a.format != "json" && cli.IsTerminal(os.Stdout)
	for {
		if onTerminal {
			if _, err := io.WriteString(a.out, clear); err != nil {
				return err
			}
		}
		if err := look(); err != nil && !errors.Is(err, cli.ErrDrift) {
			if ctx.Err() != nil {
				return nil
			}
			a.report(err)
		}
		if stall.Rest(ctx, every) != nil {
			return nil
		}
		if !onTerminal && a.format != "json" {
			cli.Printf(a.out, "\n")
		}
	}
}

// why prints what is wrong with the node, what it did about it and what to do now.
func why(ctx context.Context, a *app) error {
	return printRead(ctx, a, "why", func(n *node.Node) (spec.Why, error) { return n.Why(ctx) }, func(w spec.Why) { screen.Why(a.out, w) })
}
