// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/program"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// source is the part of apply and plan that says whom to ask and whom to trust.
type source struct {
	node                 string
	said                 spec.Bootstrap
	keys, epochKeys, cas list // files
}

func (s *source) register(f *cli.Flags) {
	f.StringVar(&s.said.Registry, "from", "", "registry `REF` as host[:port]/prefix, or oci:DIR; default: what this node is enrolled with")
	f.StringVar(&s.node, "node", "", "`name` of this node; default: what it was enrolled as, else its host name")
	f.StringVar(&s.said.Fleet, "fleet", "", "`name` of the fleet, with --from")
	f.Var(&s.keys, "key", "`file` of an operator's public key to trust, may be given several times")
	f.Var(&s.epochKeys, "epoch-key", "`file` of an epoch public key to trust, may be given several times")
	f.Var(&s.cas, "ca", "`file` of a certificate authority for the registry; default: the system's")
	f.IntVar(&s.said.Threshold, "threshold", 1, "how many distinct keys must have signed")
	f.BoolVar(&s.said.PlainHTTP, "plain-http", false, "use HTTP without TLS for the registry (default on loopback)")
}

// bootstrap is nil when nothing was said: then the node's own counts.
func (s *source) bootstrap() (*spec.Bootstrap, error) {
	if s.said.Registry == "" && len(s.keys) == 0 {
		return nil, nil
	}
	if s.said.Registry == "" || len(s.keys) == 0 || s.said.Fleet == "" {
		return nil, cli.Usage("for example: caisson-agent apply --from registry.example:5000/metal-a --fleet metal-a --key "+
			"operator.pub", "--from, --fleet and --key go together")
	}
	return program.ReadBootstrap(s.said, s.keys, s.epochKeys, s.cas)
}

func (s *source) open(ctx context.Context, a *app, verb string, open opening) (*node.Node, error) {
	b, err := s.bootstrap()
	if err != nil {
		return nil, err
	}
	o := a.options(verb)
	o.Name = s.node
	return open(ctx, o, b)
}

// retryFlag has a verb try again what was rejected.
func retryFlag(f *cli.Flags) *bool {
	return f.Bool("retry", false, "also what was rejected on this node: it failed, cut the node off, or nobody confirmed "+
		"it; and a swap that failed")
}

// asking is a verb's request to its node.
type asking func(*node.Node, context.Context) (*spec.Status, error)

func syncOr(retry bool) asking {
	if retry {
		return (*node.Node).Retry
	}
	return (*node.Node).Sync
}

func apply(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "apply")
	var s source
	s.register(f)
	retry := retryFlag(f)
	if err := a.parse(f, args); err != nil {
		return err
	}
	n, err := s.open(ctx, a, "apply", node.Open)
	if err != nil {
		return err
	}
	st, err := a.sync(ctx, n, syncOr(*retry))
	if st != nil && len(st.Checks) > 0 {
		a.say("generation %d is in effect; it is judged by its health checks now", st.Generation)
		b, bad := s.bootstrap()
		if bad != nil {
			return bad
		}
		o := a.options("apply")
		o.Name = s.node
		if judged := program.Judge(ctx, o, b, a.complain); judged != nil {
			st = judged
		}
	}
	return a.synced(st, err)
}

func syncNow(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "sync")
	retry := retryFlag(f)
	wipe := f.Bool("wipe", false, "fetch everything again, and remove all kept generations but the one that runs")
	if err := a.parse(f, args); err != nil {
		return err
	}
	ask := syncOr(*retry)
	if *wipe {
		if ask = (*node.Node).Wipe; *retry {
			return cli.Usage("sync --retry first, then sync --wipe", "--retry and --wipe exclude each other")
		}
	}
	n, err := node.Open(ctx, a.options("sync"), nil)
	if err != nil {
		return err
	}
	st, err := a.sync(ctx, n, ask)
	return a.synced(st, err)
}

// sync asks and applies, and closes the node.
func (a *app) sync(ctx context.Context, n *node.Node, ask asking) (*spec.Status, error) {
	st, err := ask(n, ctx)
	st, settled := n.Settle(ctx, st)
	return st, errors.Join(err, settled, n.Close())
}

// synced prints the status; a change that was taken back and an unhealthy node are
// errors.
func (a *app) synced(st *spec.Status, err error) error {
	if st != nil {
		if printErr := a.showStatus(st); printErr != nil {
			return printErr
		}
	}
	if err != nil {
		return err
	}
	if st != nil && st.Health != spec.HealthOK {
		return fmt.Errorf("node is %s: %s", st.Health, screen.Trouble(st))
	}
	return nil
}

// runService is the systemd service, until a signal ends it.
func runService(ctx context.Context, a *app) error {
	return program.RunDaemon(ctx, program.DaemonConfig{Node: a.options("run"), Report: a.complain})
}

// complain says what went wrong where that is not the end.
func (a *app) complain(err error) { cli.Report(a.err, "caisson-agent", err) }

func plan(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "plan")
	var s source
	s.register(f)
	if err := a.parse(f, args); err != nil {
		return err
	}
	n, err := s.open(ctx, a, "plan", node.Read)
	if err != nil {
		return err
	}
	defer n.Close() // what was journaled is on disk already
	drift, err := n.Plan(ctx)
	if err != nil {
		return err
	}
	err = a.show(map[string]any{"drift": screen.Spelled(drift)}, func() { screen.Drift(a.out, drift) })
	if err == nil && slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action != spec.ActionCannot }) {
		return cli.ErrDrift
	}
	return err
}
