// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Inspected is what a fleet has for a node, as inspect --node -o json prints it.
type Inspected struct {
	Node    string         `json:"node"`
	Row     spec.Published `json:"row"` // of fleet:index
	Overlay *spec.Overlay  `json:"overlay"`
	RunsOn  []string       `json:"runsOn"` // other layers on which what is live of it may be applied, as signed
}

// Inspect returns what the fleet has for a node, verified.
func (f *Fleet) Inspect(ctx context.Context, node string) (*Inspected, error) {
	row, ok, err := f.Row(ctx, node)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, hint("'caisson verify' lists those that are, 'caisson history --node' says when it was",
			"node %q is not published", node)
	}
	o, err := f.Overlay(ctx, node)
	if err != nil {
		return nil, err
	}
	runsOn, err := f.RunsOn(ctx, node)
	if err != nil {
		return nil, err
	}
	return &Inspected{node, row, o, append([]string{}, runsOn...)}, nil
}

// Write prints a table of what a node has, and its overlay.
func (n *Inspected) Write(w io.Writer) error {
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
