// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

func plan(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "plan")
	var s source
	s.register(f)
	if err := f.parse(a, args); err != nil {
		return ended(err)
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
	if f.format == "json" {
		if drift == nil {
			drift = []spec.Drift{}
		}
		err = cli.JSON(a.out, map[string]any{"drift": drift})
	} else {
		a.printDrift(drift)
	}
	if err == nil && len(drift) > 0 {
		return cli.ErrDrift
	}
	return err
}

func (a *app) printDrift(drift []spec.Drift) {
	for _, d := range drift {
		line := fmt.Sprintf("%-7s %s %s", d.Action, d.Item, d.Key)
		switch {
		case d.Reason != "":
			line += ": " + d.Reason
		case d.From != "" || d.To != "":
			line += fmt.Sprintf(": %q → %q", d.From, d.To)
		}
		cli.Printf(a.out, "%s\n", line)
	}
}
