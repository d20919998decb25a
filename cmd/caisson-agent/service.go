// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

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
	n, err := node.Open(ctx, a.options("service "+what), nil)
	if err != nil {
		return err
	}
	defer n.Close() // what was noted is on disk already
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
