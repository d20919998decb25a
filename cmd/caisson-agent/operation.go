// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// operationVerb is operation list, run NAME and rerun NAME.
func operationVerb(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "operation list|run NAME|rerun NAME")
	what, args := word("list", args)
	name := ""
	if what != "list" {
		name, args = word("", args)
	}
	if err := a.parse(f, args); err != nil {
		return err
	}
	switch {
	case what == "list":
		return printRead(ctx, a, "operation", func(n *node.Node) (operationList, error) {
			list, err := n.Operations()
			return operationList{append([]spec.OperationStatus{}, list...)}, err
		}, func(l operationList) {
			if len(l.Operations) == 0 {
				a.say("this node has no operations")
			}
			screen.Operations(a.out, l.Operations)
		})
	case what != "run" && what != "rerun":
		return cli.Usage("list, run NAME or rerun NAME", "unknown verb %q", "operation "+what)
	case name == "":
		return cli.Usage("see 'caisson-agent operation list'", "no operation is named")
	}
	return a.with(ctx, "operation "+what, node.Open, func(n *node.Node) error {
		runs, err := n.Ask(name, what == "run")
		switch {
		case err != nil:
			return cli.WithHint(err, "see 'caisson-agent operation list'")
		case runs:
			a.say("%s runs already", name)
		default:
			a.say("the service starts %s within a minute%s", name, map[bool]string{false: " of its window's opening"}[what == "run"])
		}
		return nil
	})
}

// operationList is the output of operation list -o json.
type operationList struct {
	Operations []spec.OperationStatus `json:"operations"`
}

// windowList is the output of windows -o json: as 'caisson windows' does.
type windowList struct {
	Windows []node.Window `json:"windows"`
}

// windows prints the openings that are not over.
func windows(ctx context.Context, a *app) error {
	return printRead(ctx, a, "windows", func(n *node.Node) (windowList, error) {
		list, err := n.Windows()
		return windowList{list}, err
	}, func(out windowList) {
		if len(out.Windows) == 0 {
			a.say("this node has no windows")
		}
		for _, w := range out.Windows {
			cli.Printf(a.out, "%s\n", w.Name)
			for _, i := range w.Intervals {
				cli.Printf(a.out, "  %s to %s\n", i.From.Local().Format(time.RFC3339), i.To.Local().Format(time.RFC3339))
			}
		}
	})
}

// serviceVerb is service list, and freeze, rollback and forward NAME.
func serviceVerb(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "service list|freeze NAME|rollback NAME|forward NAME [--reason TEXT]")
	reason := f.String("reason", "", "why: `text` for those who look at the status")
	what, args := word("list", args)
	name := ""
	if what != "list" {
		name, args = word("", args)
	}
	if err := a.parse(f, args); err != nil {
		return err
	}
	switch {
	case what == "list":
		return printRead(ctx, a, "service", func(n *node.Node) (serviceList, error) {
			list, err := n.Services()
			return serviceList{append([]spec.ServiceStatus{}, list...)}, err
		}, func(l serviceList) {
			if len(l.Services) == 0 {
				a.say("this node has no services from git")
			}
			screen.Services(a.out, l.Services)
		})
	case !slices.Contains([]string{"freeze", "rollback", "forward"}, what):
		return cli.Usage("list, freeze NAME, rollback NAME or forward NAME", "unknown verb %q", "service "+what)
	case name == "":
		return cli.Usage("see 'caisson-agent service list'", "no service is named")
	}
	return a.with(ctx, "service "+what, node.Open, func(n *node.Node) (err error) {
		var st spec.ServiceStatus
		switch what {
		case "forward":
			st, err = n.ForwardService(name)
		case "rollback":
			st, err = n.RollbackService(name, *reason)
		default:
			st, err = n.FreezeService(name, *reason)
		}
		if err != nil {
			return cli.WithHint(err, "see 'caisson-agent service list'")
		}
		if _, err := n.Apply(ctx); err != nil {
			return err
		}
		return a.show(serviceList{[]spec.ServiceStatus{st}}, func() { screen.Services(a.out, []spec.ServiceStatus{st}) })
	})
}

// word takes the first argument unless it is a flag.
func word(otherwise string, args []string) (string, []string) {
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		return args[0], args[1:]
	}
	return otherwise, args
}

// serviceList is the output of service -o json.
type serviceList struct {
	Services []spec.ServiceStatus `json:"services"`
}

// holding are the flags of the verbs that have the node keep something.
type holding struct {
	reason string
	lasts  time.Duration
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
func parseHolding(a *app, usage string, args []string) (h holding, err error) {
	f := newFlags(a, usage)
	f.StringVar(&h.reason, "reason", "", "why: `text` for status and the journal")
	f.DurationVar(&h.lasts, "for", 0, "end it by itself after this `time`, as in 2h")
	err = a.parse(f, args)
	if h.lasts < 0 || h.lasts > 0 && h.lasts < time.Second {
		err = errors.Join(err, cli.Usage("as in --for 2h", "invalid duration %s", h.lasts))
	}
	return h, err
}

// hold has the node keep something, and says what ends that.
func (a *app) hold(ctx context.Context, verb string, args []string, act func(*node.Node, string, time.Duration) error, said string) error {
	h, err := parseHolding(a, verb, args)
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
	if err := a.parse(f, args); err != nil {
		return err
	}
	return a.operate(ctx, "forward", "this node follows its fleet; 'caisson-agent sync' asks now",
		func(n *node.Node) error { return n.Forward(*why) })
}

func pause(ctx context.Context, a *app, args []string) error {
	return a.hold(ctx, "pause", args, (*node.Node).Pause, "nothing on this node is changed now; 'caisson-agent resume' ends that")
}

func resume(ctx context.Context, a *app) error {
	return a.operate(ctx, "resume", "the service corrects now what drifted meanwhile", (*node.Node).Resume)
}

func rollback(ctx context.Context, a *app, args []string) error {
	h, err := parseHolding(a, "rollback", args)
	if err != nil {
		return err
	}
	return a.goBack(ctx, "rollback", func(n *node.Node) (*spec.Status, error) { return n.Rollback(ctx, h.reason, h.lasts) })
}

// pin is pin GEN.
func pin(ctx context.Context, a *app, args []string) error {
	name, args := word("", args)
	h, err := parseHolding(a, "pin GEN", args)
	if err != nil {
		return err
	}
	generation, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return cli.Usage("as in caisson-agent pin 41", "invalid generation %q", name)
	}
	return a.goBack(ctx, "pin", func(n *node.Node) (*spec.Status, error) { return n.Pin(ctx, generation, h.reason, h.lasts) })
}

// goBack prints the status after a verb that changed to another generation.
func (a *app) goBack(ctx context.Context, verb string, act func(*node.Node) (*spec.Status, error)) error {
	return a.operate(ctx, verb, "", func(n *node.Node) error {
		st, err := act(n)
		if st != nil {
			if printed := a.showStatus(st); printed != nil {
				return printed
			}
		}
		return err
	})
}

func confirm(ctx context.Context, a *app) error {
	return a.with(ctx, "confirm", node.Open, func(n *node.Node) error {
		err := n.Confirm(ctx)
		if err == nil {
			a.say("the change is confirmed")
		}
		return err
	})
}
