// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	r *Reader
	v *State
}

// Open reads what is published, for a purpose. Where nothing is, the fleet is empty.
func (r *Reader) Open(ctx context.Context, policy Policy, why Purpose) (*Fleet, error) {
	v, err := r.look(ctx, policy, why)
	if err != nil {
		return nil, err
	}
	return &Fleet{r, v}, nil
}

// With returns the fleet for another reader, who asks the registry from now on.
func (f *Fleet) With(r *Reader) *Fleet { return &Fleet{r, f.v} }

// State returns what was read.
func (f *Fleet) State() *State { return f.v }

// Reader returns a copy of the reader of the fleet.
func (f *Fleet) Reader() Reader { return *f.r }

// Read reads what is published, with the policy of a site. It writes nothing.
func (r *Reader) Read(ctx context.Context, policy Policy) (*Fleet, error) {
	policy.Site = true
	return r.Open(ctx, policy, Purpose{Publish: true})
}

// Find reads what is published, with the policy of a site or with keys alone, also
// where it expired. Where nothing is, the fleet is empty. It writes nothing.
func (r *Reader) Find(ctx context.Context, policy Policy) (*Fleet, error) {
	q := *r
	q.AcceptExpired = true
	return q.Open(ctx, policy, Purpose{})
}

// Look reads what is published for those who change nothing, with the policy that the reader
// trusts. A registry without a fleet is an error. While a publish is at work, or was cut, it has
// the rows before it.
func (r *Reader) Look(ctx context.Context) (*Fleet, error) {
	f, err := r.Open(ctx, r.Trusted(), Purpose{Half: true})
	if err == nil && f.v.Index == nil {
		err = r.Unpublished()
	}
	return f, err
}

// root returns fleet:index, the zero value where nothing is published.
func (f *Fleet) root() spec.FleetIndex {
	if f.v.Index == nil {
		return spec.FleetIndex{}
	}
	return f.v.Index.Root
}

// Say tells people something about what was read.
func (f *Fleet) Say(format string, args ...any) { f.r.Say(format, args...) }

// Policy returns the policy that the fleet was read with, completed from its index.
func (f *Fleet) Policy() Policy { return f.v.Policy }

// Now returns the time that the fleet was read at, and in a step of a rollout that behind
// every wait.
func (f *Fleet) Now() time.Time { return f.r.Now }

// Floor returns the epoch and the generation that were given out last, zero where
// nothing is published.
func (f *Fleet) Floor() spec.Floor {
	return spec.Floor{Epoch: f.root().Epoch, Generation: f.root().Generation}
}

// CurrentExpires returns until when fleet:current confirms what nodes find, zero where
// nothing is published.
func (f *Fleet) CurrentExpires() time.Time {
	if f.v.Current == nil {
		return time.Time{}
	}
	return f.v.Current.Expires
}

// SignedBy returns the ids of the keys by which what is published counts.
func (f *Fleet) SignedBy() []string { return f.v.By }

// Reserved reports whether a generation is given out that is not published yet: a publish
// is at work, or was cut. All that the fleet says is of the state before it.
func (f *Fleet) Reserved() bool { return f.root().Reserved }

// Root returns the digest of the manifest of fleet:index, "" where nothing is
// published: the same root has the same rows.
func (f *Fleet) Root() string { return f.v.Manifest }

// Nodes returns the rows of fleet:index by node, none where nothing is published.
func (f *Fleet) Nodes(ctx context.Context) (index.Rows, error) {
	if f.v.Index == nil {
		return nil, nil
	}
	return f.v.Index.All(ctx)
}

// Row returns a node's row of fleet:index, and whether there is one.
func (f *Fleet) Row(ctx context.Context, node string) (spec.Published, bool, error) {
	if f.v.Index == nil {
		return spec.Published{}, false, nil
	}
	return f.v.Index.Row(ctx, node)
}

// Overlay returns what is published for a node of the index.
func (f *Fleet) Overlay(ctx context.Context, node string) (*spec.Overlay, error) {
	l, err := f.Signed(ctx, node)
	if err != nil {
		return nil, index.OfNode(node, err)
	}
	return &l.Overlay, nil
}

// Layer returns the layer of a manifest's digest, verified with the release keys that
// the fleet was read with.
func (f *Fleet) Layer(ctx context.Context, digest string) (release.Layer, error) {
	if !oci.ValidDigest(digest) {
		return release.Layer{}, fmt.Errorf("%.80q is not the digest of a layer", digest)
	}
	list, err := f.r.Layers(ctx, f.v.Policy, digest)
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
	l, err := f.Signed(ctx, node)
	if err != nil {
		return nil, index.OfNode(node, err)
	}
	return l.Accepted.RunsOn, nil
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
		return nil, cli.Hint("'caisson verify' lists those that are, 'caisson history --node' says when it was",
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

// Signed reads a published overlay and verifies that it is the one in the index,
// and signed as nodes demand it.
func (f *Fleet) Signed(ctx context.Context, name string) (*Signed, error) {
	row, _, err := f.v.Index.Row(ctx, name)
	if err != nil {
		return nil, err
	}
	l, err := f.lookAt(ctx, name, row.Manifest, row)
	if err != nil {
		return nil, err
	}
	return l, f.r.allRules().overlay.Run(l)
}

// lookAt reads what a reference in the repository of the nodes leads to, to be checked beside a
// node's row.
func (f *Fleet) lookAt(ctx context.Context, name, reference string, row spec.Published) (l *Signed, err error) {
	l = &Signed{name: name, row: row, index: &f.v.Index.Root, policy: f.v.Policy, now: f.r.Now, agent: f.r.AgentRules()}
	src := f.r.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, reference, "")
	if err != nil {
		return nil, err
	}
	l.Candidate = trust.Candidate{Manifest: resp.Digest}
	l.Candidate.Document, l.Candidate.Bundles, err = oci.ReadOverlay(ctx, src, oci.RepoNode, resp)
	return l, err
}

// Allowed is an error where one of these digests is on the reject list.
func (f *Fleet) Allowed(digests ...string) error {
	for _, digest := range digests {
		if digest != "" && slices.Contains(f.v.Rejected(), digest) {
			return HintReject(refusal.New(refusal.Rejected, "%s is on the reject list", digest))
		}
	}
	return nil
}

// HintReject says how something comes off the reject list, where an error is about that. Who
// meets it in need may have put a forgery there: only a mistake comes off.
func HintReject(err error) error {
	if refusal.Of(err) != refusal.Rejected {
		return err
	}
	return cli.WithHint(err, "publish or go back to something else; if it was rejected by mistake, 'caisson refresh "+
		"--allow DIGEST' removes it from the list")
}

// Sent returns what a node was sent, nil for nothing; no node was sent anything by a fleet that is nil.
func (f *Fleet) Sent(ctx context.Context, node string) (*spec.Overlay, error) {
	if f == nil {
		return nil, nil
	}
	if _, is, err := f.Row(ctx, node); err != nil || !is {
		return nil, err
	}
	return f.Overlay(ctx, node)
}
