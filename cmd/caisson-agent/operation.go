// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
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
	if err := f.parse(a, args); err != nil {
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
			a.printOperations(l.Operations)
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

func (a *app) printOperations(list []spec.OperationStatus) {
	for _, o := range list {
		line := fmt.Sprintf("%-8s %-30s %s", o.Type, o.Name, o.State)
		if !o.Since.IsZero() {
			line += " since " + o.Since.Format(time.RFC3339)
		}
		if !o.Next.IsZero() {
			line += ", next " + o.Next.Format(time.RFC3339)
		}
		if o.Missed > 0 {
			line += fmt.Sprintf(", missed %d times", o.Missed)
		}
		if o.Detail != "" {
			line += ": " + o.Detail
		}
		cli.Printf(a.out, "%s\n", line)
	}
}

// windowList is the output of windows -o json: as 'caisson windows' does.
type windowList struct {
	Windows []nodeWindow `json:"windows"`
}

type nodeWindow struct {
	Name      string          `json:"name"`
	Intervals []spec.Interval `json:"intervals"`
}

// windows prints the openings that are not over.
func windows(ctx context.Context, a *app, args []string) error {
	if err := newFlags(a, "windows").parse(a, args); err != nil {
		return err
	}
	return printRead(ctx, a, "windows", func(n *node.Node) (windowList, error) {
		all, err := n.Windows()
		out := windowList{Windows: []nodeWindow{}}
		for _, name := range slices.SortedFunc(maps.Keys(all), cmp.Compare) {
			w := nodeWindow{Name: name, Intervals: []spec.Interval{}}
			for _, i := range all[name].Intervals {
				if i.To.After(time.Now()) {
					w.Intervals = append(w.Intervals, i)
				}
			}
			out.Windows = append(out.Windows, w)
		}
		return out, err
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
	if err := f.parse(a, args); err != nil {
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
			a.printServices(l.Services)
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
		return a.show(serviceList{[]spec.ServiceStatus{st}}, func() { a.printServices([]spec.ServiceStatus{st}) })
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

func (a *app) printServices(list []spec.ServiceStatus) {
	for _, s := range list {
		cli.Printf(a.out, "%s  %s  %s  %s", s.Name, s.Unit, s.Commit, s.Tracking)
		if s.Tracking == spec.Frozen {
			cli.Printf(a.out, " since %s", s.Since.Format(time.RFC3339))
			if s.Reason != "" {
				cli.Printf(a.out, ": %s", s.Reason)
			}
			cli.Printf(a.out, ", the fleet has %s", s.Published)
		}
		cli.Printf(a.out, "\n")
		if before := slices.DeleteFunc(slices.Clone(s.Kept), func(c string) bool { return c == s.Commit }); len(before) > 0 {
			cli.Printf(a.out, "  also here: %s\n", strings.Join(before, " "))
		}
	}
}
