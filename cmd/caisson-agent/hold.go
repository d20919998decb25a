// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// holding are the flags of the verbs that have the node keep something.
type holding struct {
	reason string
	lasts  time.Duration
}

func (h *holding) register(f *flags) {
	f.StringVar(&h.reason, "reason", "", "why: `text` for status and the journal")
	f.DurationVar(&h.lasts, "for", 0, "end it by itself after this `time`, as in 2h")
}

func (h *holding) check() error {
	if h.lasts < 0 || h.lasts > 0 && h.lasts < time.Second {
		return cli.Usage("as in --for 2h", "invalid duration %s", h.lasts)
	}
	return nil
}

// operate opens the node for a verb that says something to it, says what came of it, and how long
// it is remembered.
func (a *app) operate(ctx context.Context, verb, said string, act func(*node.Node) error) error {
	return a.with(ctx, verb, node.Open, func(n *node.Node) error {
		if err := act(n); err != nil {
			return err
		}
		if said != "" {
			a.say("%s", said)
		}
		if !n.Remembers() {
			a.say("this node has no state disk: this ends with the next boot")
		}
		return nil
	})
}

// parseHolding parses the arguments of such a verb.
func parseHolding(a *app, usage string, args []string) (*flags, holding, error) {
	f, h := newFlags(a, usage), holding{}
	h.register(f)
	err := errors.Join(f.parse(a, args), h.check())
	return f, h, err
}

// hold has the node keep something, and says what ends that.
func (a *app) hold(ctx context.Context, verb string, args []string, act func(*node.Node, string, time.Duration) error, said string) error {
	_, h, err := parseHolding(a, verb, args)
	if err != nil {
		return err
	}
	return a.operate(ctx, verb, said, func(n *node.Node) error { return act(n, h.reason, h.lasts) })
}

func freeze(ctx context.Context, a *app, args []string) error {
	return a.hold(ctx, "freeze", args, (*node.Node).Freeze, "this node keeps what it has; 'caisson-agent forward' ends that")
}

func forward(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "forward")
	why := f.String("reason", "", "why: `text` for the journal")
	if err := f.parse(a, args); err != nil {
		return err
	}
	return a.operate(ctx, "forward", "this node follows its fleet; 'caisson-agent sync' asks now",
		func(n *node.Node) error { return n.Forward(*why) })
}

func pause(ctx context.Context, a *app, args []string) error {
	return a.hold(ctx, "pause", args, (*node.Node).Pause, "nothing on this node is changed now; 'caisson-agent resume' ends that")
}

func resume(ctx context.Context, a *app, args []string) error {
	if err := newFlags(a, "resume").parse(a, args); err != nil {
		return err
	}
	return a.operate(ctx, "resume", "the service corrects now what drifted meanwhile", (*node.Node).Resume)
}

func rollback(ctx context.Context, a *app, args []string) error {
	f, h, err := parseHolding(a, "rollback", args)
	if err != nil {
		return err
	}
	return a.goBack(ctx, f, func(n *node.Node) (*spec.Status, error) { return n.Rollback(ctx, h.reason, h.lasts) })
}

// pin is pin GEN.
func pin(ctx context.Context, a *app, args []string) error {
	name, args := word("", args)
	f, h, err := parseHolding(a, "pin GEN", args)
	if err != nil {
		return err
	}
	generation, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return cli.Usage("as in caisson-agent pin 41", "invalid generation %q", name)
	}
	return a.goBack(ctx, f, func(n *node.Node) (*spec.Status, error) { return n.Pin(ctx, generation, h.reason, h.lasts) })
}

// goBack prints the status after a verb that changed to another generation.
func (a *app) goBack(ctx context.Context, f *flags, act func(*node.Node) (*spec.Status, error)) error {
	return a.operate(ctx, strings.Fields(f.Name())[0], "", func(n *node.Node) error {
		st, err := act(n)
		if st != nil {
			if printed := a.showStatus(st); printed != nil {
				return printed
			}
		}
		return err
	})
}

func confirm(ctx context.Context, a *app, args []string) error {
	if err := newFlags(a, "confirm").parse(a, args); err != nil {
		return err
	}
	return a.with(ctx, "confirm", node.Open, func(n *node.Node) error {
		err := n.Confirm(ctx)
		if err == nil {
			a.say("the change is confirmed")
		}
		return err
	})
}
