// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Fleet is a published fleet, as far as it passed every check that a publish
// makes before it uses any of it.
type Fleet struct {
	p *Publisher
	v *view
}

// Read reads what is published, with the policy of a site. It writes nothing.
func (p *Publisher) Read(ctx context.Context, policy Policy) (*Fleet, error) {
	policy.Site = true
	v, err := p.look(ctx, policy, purpose{publish: true})
	if err != nil {
		return nil, err
	}
	return &Fleet{p, v}, nil
}

// Find reads what is published, with the policy of a site or with keys alone, also
// where it expired. Where nothing is, the fleet is empty. It writes nothing.
func (p *Publisher) Find(ctx context.Context, policy Policy) (*Fleet, error) {
	q := *p
	q.AcceptExpired = true
	v, err := q.look(ctx, policy, purpose{})
	if err != nil {
		return nil, err
	}
	return &Fleet{&q, v}, nil
}

// root returns fleet:index, the zero value where nothing is published.
func (f *Fleet) root() spec.FleetIndex {
	if f.v.index == nil {
		return spec.FleetIndex{}
	}
	return f.v.index.Root
}

// Say tells people something about what was read.
func (f *Fleet) Say(format string, args ...any) { f.p.Say(format, args...) }

// Policy returns the policy that the fleet was read with, completed from its index.
func (f *Fleet) Policy() Policy { return f.v.policy }

// Now returns the time that the fleet was read at, and in [Publisher.Advance] that behind
// every wait.
func (f *Fleet) Now() time.Time { return f.p.Now }

// Floor returns the epoch and the generation that were given out last, zero where
// nothing is published.
func (f *Fleet) Floor() spec.Floor {
	return spec.Floor{Epoch: f.root().Epoch, Generation: f.root().Generation}
}

// CurrentExpires returns until when fleet:current confirms what nodes find, zero where
// nothing is published.
func (f *Fleet) CurrentExpires() time.Time {
	if f.v.current == nil {
		return time.Time{}
	}
	return f.v.current.Expires
}

// Look reads what is published for those who change nothing, with the policy that
// the publisher trusts. A registry without a fleet is an error.
func (p *Publisher) Look(ctx context.Context) (*Fleet, error) {
	v, err := p.published(ctx, p.trusted())
	if err != nil {
		return nil, err
	}
	return &Fleet{p, v}, nil
}

// SignedBy returns the ids of the keys by which what is published counts.
func (f *Fleet) SignedBy() []string { return f.v.by }

// Reserved reports whether a generation is given out that is not published yet: a publish
// is at work, or was cut. All that the fleet says is of the state before it.
func (f *Fleet) Reserved() bool { return f.root().Reserved }

// Unfinished says what publishes what is not published yet, or that it was cut; "" where
// the fleet is whole.
func (f *Fleet) Unfinished(ctx context.Context) (string, error) {
	if !f.Reserved() {
		return "", nil
	}
	return f.unfinished(ctx)
}

// Root returns the digest of the manifest of fleet:index, "" where nothing is
// published: the same root has the same rows.
func (f *Fleet) Root() string { return f.v.manifest }

// Nodes returns the rows of fleet:index by node, none where nothing is published.
func (f *Fleet) Nodes(ctx context.Context) (index.Rows, error) {
	if f.v.index == nil {
		return nil, nil
	}
	return f.v.index.All(ctx)
}

// Row returns a node's row of fleet:index, and whether there is one.
func (f *Fleet) Row(ctx context.Context, node string) (spec.Published, bool, error) {
	if f.v.index == nil {
		return spec.Published{}, false, nil
	}
	return f.v.index.Row(ctx, node)
}

// Overlay returns what is published for a node of the index.
func (f *Fleet) Overlay(ctx context.Context, node string) (*spec.Overlay, error) {
	l, err := f.overlay(ctx, node)
	if err != nil {
		return nil, ofNode(node, err)
	}
	return &l.overlay, nil
}

// Layer returns the layer of a manifest's digest, verified with the release keys that
// the fleet was read with.
func (f *Fleet) Layer(ctx context.Context, digest string) (release.Layer, error) {
	if !oci.ValidDigest(digest) {
		return release.Layer{}, fmt.Errorf("%.80q is not the digest of a layer", digest)
	}
	list, err := f.p.Layers(ctx, f.v.policy, digest)
	if err != nil {
		return release.Layer{}, err
	}
	if len(list) != 1 {
		return release.Layer{}, refusal.New(refusal.MediaType, "%s is not one layer", digest)
	}
	return list[0], nil
}

// RunsOn returns the other layers on which what is live of a node's overlay may be
// applied, newest first.
func (f *Fleet) RunsOn(ctx context.Context, node string) ([]string, error) {
	l, err := f.overlay(ctx, node)
	if err != nil {
		return nil, ofNode(node, err)
	}
	return l.accepted.RunsOn, nil
}

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
		line("held", "%s", HoldText(row.Holds))
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
