// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// source is the part of apply and plan that says whom to ask and whom to believe.
type source struct {
	from, node, fleet string
	keys              list
	threshold         int
	plain             bool
}

func (s *source) register(f *flags) {
	f.StringVar(&s.from, "from", "", "registry as host[:port]/prefix, or oci:DIR; default: what this node was born with")
	f.StringVar(&s.node, "node", "", "name of this node; default: its host name")
	f.StringVar(&s.fleet, "fleet", "", "name of the fleet, with --from")
	f.Var(&s.keys, "key", "public key file to believe, may be given several times")
	f.IntVar(&s.threshold, "threshold", 1, "how many distinct keys must have signed")
	f.BoolVar(&s.plain, "plain-http", false, "speak HTTP without TLS to the registry")
}

// bootstrap is nil when nothing was said: then the node's own counts.
func (s *source) bootstrap() (*spec.Bootstrap, error) {
	if s.from == "" && len(s.keys) == 0 {
		return nil, nil
	}
	if s.from == "" || len(s.keys) == 0 || s.fleet == "" {
		return nil, cli.Usage("for example: caisson-agent apply --from registry.example:5000/metal-a --fleet metal-a --key operator.pub", "--from, --fleet and --key go together")
	}
	if dir, ok := cutLayout(s.from); ok {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		s.from = "oci:" + abs
	}
	b := &spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: s.fleet, Registry: s.from, PlainHTTP: s.plain, Threshold: s.threshold}
	for _, name := range s.keys {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		b.Keys = append(b.Keys, string(data))
	}
	return b, nil
}

func cutLayout(ref string) (string, bool) {
	if len(ref) > 4 && ref[:4] == "oci:" {
		return ref[4:], true
	}
	return "", false
}

func (s *source) open(ctx context.Context, a *app, open func(context.Context, node.Options, *spec.Bootstrap) (*node.Node, error)) (*node.Node, error) {
	b, err := s.bootstrap()
	if err != nil {
		return nil, err
	}
	n, err := open(ctx, a.options(), b)
	if err != nil {
		return nil, err
	}
	name := s.node
	if name == "" && b != nil {
		if name, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	if name != "" {
		n.Name(name)
	}
	return n, nil
}

func apply(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "apply")
	var s source
	s.register(f)
	if err := f.parse(a, args); err != nil {
		return ended(err)
	}
	n, err := s.open(ctx, a, node.Open)
	if err != nil {
		return err
	}
	return a.sync(ctx, f, n)
}

func syncNow(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "sync")
	if err := f.parse(a, args); err != nil {
		return ended(err)
	}
	n, err := node.Open(ctx, a.options(), nil)
	if err != nil {
		return err
	}
	return a.sync(ctx, f, n)
}

// sync asks, applies and prints the status; an unhealthy node is an error.
func (a *app) sync(ctx context.Context, f *flags, n *node.Node) error {
	defer n.Close() // what was journaled is on disk already
	st, err := n.Sync(ctx)
	err = errors.Join(err, n.Wait())
	if st != nil && err == nil && slices.ContainsFunc(st.Drift, func(d spec.Drift) bool { return d.Item == "exec" && d.Action == spec.ActionDefer }) {
		st, err = n.Status(ctx) // scripts in the background have ended since
	}
	if st != nil {
		if printErr := a.printStatus(f, st); printErr != nil {
			return printErr
		}
	}
	if err != nil {
		return err
	}
	if st != nil && st.Health != spec.HealthOK {
		return fmt.Errorf("node is %s: %s", st.Health, firstTrouble(st))
	}
	return nil
}

func firstTrouble(st *spec.Status) string {
	for _, i := range st.Items {
		if i.Error != "" {
			return i.Name + ": " + i.Error
		}
	}
	for _, d := range st.Drift {
		if d.Action != spec.ActionDefer {
			return fmt.Sprintf("%s %q is %q, not %q", d.Item, d.Key, d.From, d.To)
		}
	}
	return "see 'caisson-agent status'"
}
