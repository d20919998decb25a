// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// inspectedNode is what inspect --node -o json prints.
type inspectedNode struct {
	Node    string         `json:"node"`
	Row     spec.Published `json:"row"` // of fleet:index
	Overlay *spec.Overlay  `json:"overlay"`
	RunsOn  []string       `json:"runsOn"` // other layers on which what is live of it may be applied, as signed
}

// inspectNode prints what a fleet has for a node, verified.
func (a *app) inspectNode(ctx context.Context, look *looking, ref, node string) error {
	fleet, err := look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	row, ok, err := fleet.Row(ctx, node)
	if err != nil {
		return err
	}
	if !ok {
		return cli.WithHint(fmt.Errorf("node %q is not published", node), "'caisson verify' lists those that are, 'caisson history --node' says when it was")
	}
	o, err := fleet.Overlay(ctx, node)
	if err != nil {
		return err
	}
	runsOn, err := fleet.RunsOn(ctx, node)
	if err != nil {
		return err
	}
	found := inspectedNode{node, row, o, append([]string{}, runsOn...)}
	shown := a.show(found, func() { err = found.print(a.out) })
	return cmp.Or(shown, err)
}

// print prints a table of what a node has, and its overlay.
func (n inspectedNode) print(w io.Writer) error {
	row, o := n.Row, n.Overlay
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(key, format string, args ...any) { cli.Printf(t, "%s\t", key); cli.Printf(t, format+"\n", args...) }
	line("node", "%s of fleet %s", n.Node, o.Fleet)
	line("generation", "%d, signed until %s", row.Generation, time.Unix(row.Expires, 0).UTC().Format(time.RFC3339))
	line("found as", "%s", strings.Join(append([]string{n.Node}, trust.AliasTags(row.Match.MACs, row.Match.UUIDs)...), " "))
	line("overlay", "%s", row.Overlay)
	if row.Layer != "" {
		line("layer", "%s, variant %s", row.Layer, o.Variant)
	}
	for _, layer := range n.RunsOn {
		line("runs on", "%s, until its own layer is booted", layer)
	}
	for _, s := range o.Services {
		line("service "+s.Name, "commit %s, image %s", s.Commit, s.Image.Digest)
	}
	if len(row.Holds) > 0 {
		line("held", "%s", hold.String(row.Holds))
	}
	if b := row.Before; b != nil {
		line("before", "%s of generation %d", strings.TrimSpace(b.Overlay+" "+b.Layer), b.Generation)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	cli.Printf(w, "\n")
	return cli.JSON(w, o)
}
