// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

func plan(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "plan")
	var s source
	s.register(f)
	if err := f.parse(a, args); err != nil {
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
	err = a.show(map[string]any{"drift": spelled(drift)}, func() { a.printDrift(drift) })
	if err == nil && slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action != spec.ActionCannot }) {
		return cli.ErrDrift
	}
	return err
}

// matters reports whether a drift of a status is one that somebody should look at
// now: not what is waited for, and not what this host cannot have.
func matters(d spec.Drift) bool {
	return d.Action != spec.ActionDefer && d.Action != spec.ActionCannot
}

// spelled returns drift with its keys as their authors spell them; an empty list
// is never nil.
func spelled(drift []spec.Drift) []spec.Drift {
	out := make([]spec.Drift, len(drift))
	for i, d := range drift {
		out[i] = rules.Spelled(d)
	}
	return out
}

// story says how it came to a drift: since when, how often, and by whom.
func story(d spec.Drift) string {
	var words []string
	if d.Action != spec.ActionDefer && !d.Since.IsZero() {
		words = append(words, "since "+d.Since.Format(time.RFC3339))
	}
	if d.Count > 0 {
		words = append(words, fmt.Sprintf("after %d corrections", d.Count))
	}
	if d.Rival != "" {
		words = append(words, "by "+d.Rival)
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

func (a *app) printDrift(drift []spec.Drift) {
	for _, d := range spelled(drift) {
		line := fmt.Sprintf("%-7s %s %s", d.Action, d.Item, d.Key)
		switch {
		case d.Reason != "":
			line += ": " + d.Reason
		case d.From != "" || d.To != "":
			line += fmt.Sprintf(": %q → %q", d.From, d.To)
		}
		line += story(d)
		cli.Printf(a.out, "%s\n", line)
	}
}
