// SPDX-License-Identifier: Apache-2.0

// Package mirror copies a published fleet, or one of its layers, to another place:
// behind an air gap, to a second site, from a canary's registry to production's.
//
// It publishes nothing: what arrives has the digests and signatures that it had. It
// decides what belongs to a fleet, whether it may be copied, and in which order nodes
// must find it: layers and images of services, overlays and versions of the keys, then
// fleet:index and fleet:current. A [registry.Transfer] moves the bytes. Only cmd/caisson imports it.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Mirror copies from one publisher's place to another's. They read only.
type Mirror struct {
	From, To *published.Reader
	Policy   *published.Policy // what is copied is verified with it; nil copies anything
	Say      func(format string, args ...any)
	Dry      bool // the result says what would be copied, and nothing is
}

// Result is the output of copy -o json.
type Result struct {
	From   string   `json:"from"`
	To     string   `json:"to"`
	Copied []Copied `json:"copied"`
	DryRun bool     `json:"dryRun,omitempty"` // all of it would be so: nothing was copied
}

// Write prints for people what was copied, and what was there already.
func (r *Result) Write(w io.Writer) {
	for _, c := range r.Copied {
		size := "there already"
		if c.Blobs > 0 {
			size = plain.Bytes(c.Bytes)
		}
		cli.Printf(w, "%s\t%s\t%s\t%s\n", c.Repository, c.Digest, strings.Join(c.Tags, ","), size)
	}
}

// Tell says how much had to be copied.
func (r *Result) Tell(say func(format string, args ...any)) {
	var bytes int64
	for _, c := range r.Copied {
		bytes += c.Bytes
	}
	had := "had to be copied"
	if r.DryRun {
		had = "would be copied"
	}
	say("%s to %s: %s, of which %s %s", r.From, r.To, plain.Count(len(r.Copied), "artifact"), plain.Bytes(bytes), had)
}

// Copied is one artifact in a [Result]. What was there already is in the list, too,
// without blobs and bytes.
type Copied struct {
	Repository string   `json:"repository"` // layer, service, node or fleet
	Digest     string   `json:"digest"`
	Tags       []string `json:"tags"`
	registry.Moved
}

// run is one copy at work.
type run struct {
	*Mirror
	transfer *registry.Transfer
	policy   *published.Policy // completed from the index
	result   *Result
	mu       sync.Mutex // of what was copied
}

// start opens the destination for many writes as one, lets do copy, and ends it.
func (m *Mirror) start(do func(*run) error) (_ *Result, err error) {
	r := &run{Mirror: m, transfer: &registry.Transfer{From: m.From.Registry, To: m.To.Registry, Say: m.Say}, policy: m.Policy,
		result: &Result{From: m.From.Registry.Ref().String(), To: m.To.Registry.Ref().String(), Copied: []Copied{}}}
	if m.Dry {
		r.transfer.Dry, r.result.DryRun = true, true
		return r.result, do(r)
	}
	batch, err := m.To.Registry.Batch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, batch.Close()) }()
	if err := do(r); err != nil {
		return nil, err
	}
	return r.result, batch.Flush()
}

// Fleet copies all of a fleet: the layers under their tags, the nodes' overlays, and
// the fleet's documents. An older fleet takes the place of no newer one.
func (m *Mirror) Fleet(ctx context.Context) (*Result, error) {
	if m.Policy != nil {
		if err := m.verify(ctx, m.From); err != nil {
			return nil, err
		}
	}
	result, err := m.start(func(r *run) error {
		nodes, err := r.nodes(ctx)
		if err != nil {
			return err
		}
		for _, step := range []func() error{
			func() error { return r.layers(ctx) },
			func() error { return r.some(ctx, oci.RepoService, isKept) },
			func() error { return r.some(ctx, oci.RepoLoader, isKept) },
			func() error { return r.overlays(ctx, nodes.before) },
			func() error { return r.some(ctx, oci.RepoFleet, published.IsKeys) }, // oldest first: a node finds each by the one before
			func() error { return r.overlays(ctx, nodes.after) },
			func() error { return r.some(ctx, oci.RepoFleet, isDocument) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || m.Policy == nil || m.Dry {
		return result, err
	}
	if err := m.verify(ctx, m.To); err != nil {
		return nil, cli.WithHint(fmt.Errorf("the copy: %w", err), "somebody published meanwhile: copy again")
	}
	return result, nil
}

// verify asks what nodes would ask.
func (m *Mirror) verify(ctx context.Context, p *published.Reader) error {
	report, err := verify.Fleet(ctx, p, *m.Policy, nil, false)
	if err != nil {
		return err
	}
	for _, c := range report.Findings {
		if c.Verdict == "expired" {
			return cli.WithHint(refusal.New(refusal.Expired, "%s: %s %s", p.Registry.Ref(), c.What, c.Detail),
				"'caisson refresh "+p.Registry.Ref().String()+"' signs it again; then copy")
		}
		if c.Verdict != "ok" {
			return cli.WithHint(refusal.New(refusal.Code(c.Verdict), "%s: %s: %s", p.Registry.Ref(), c.What, c.Detail),
				"'caisson verify' lists all of it; --unverified copies it all the same")
		}
	}
	return nil
}

// nodeTags are tags of the node repository, by when they are copied.
type nodeTags struct{ before, after []string } // versions of the keys

// nodes returns the tags to copy of the node repository: of the nodes in the verified
// index, of their machines and of the shards of all generations; or all.
func (r *run) nodes(ctx context.Context) (tags nodeTags, err error) {
	if r.policy == nil {
		tags.after, err = r.From.Registry.Tags(ctx, oci.RepoNode)
		return tags, err
	}
	here, err := r.From.Find(ctx, *r.policy)
	if err != nil {
		return tags, err
	}
	policy := here.Policy()
	floor, there, err := r.To.Reached(ctx, policy)
	if err != nil {
		return tags, cli.WithHint(fmt.Errorf("what %s holds: %w", r.To.Registry.Ref(), err),
			"is it another fleet's place? --unverified replaces whatever is there")
	}
	if floor.Compare(here.Floor()) > 0 {
		return tags, wrongWay("%s holds generation %d of epoch %d, this is generation %d of epoch %d",
			r.To.Registry.Ref(), floor.Generation, floor.Epoch, here.Floor().Generation, here.Floor().Epoch)
	}
	if there.Chain != nil && there.Chain.Version() > policy.Chain.Version() {
		return tags, wrongWay("%s has version %d of the keys, this is version %d", r.To.Registry.Ref(),
			there.Chain.Version(), policy.Chain.Version())
	}
	r.policy = &policy
	rows, err := here.Nodes(ctx)
	if err != nil {
		return tags, err
	}
	shards, err := r.tags(ctx, oci.RepoNode, published.IsShard)
	if err != nil {
		return tags, err
	}
	before, after, err := r.byKeys(ctx, rows)
	return nodeTags{tagsOf(before), append(tagsOf(after), shards...)}, err
}

func wrongWay(format string, args ...any) error {
	return cli.WithHint(refusal.New(refusal.Rollback, format, args...), "nodes there would refuse it; is it copied the wrong way round?")
}

// sorted returns tags with the ones that name what is newest at the end, after what they need:
// fleet:index is copied with the generation that it is.
func sorted(tags []string) []string {
	last := func(tag string) int {
		switch {
		case tag == "current":
			return 3
		case tag == "index":
			return 2
		case strings.HasPrefix(tag, "gen-"):
			return 1
		}
		return 0
	}
	slices.SortFunc(tags, func(a, b string) int { return cmp.Or(last(a)-last(b), plain.Natural(a, b)) })
	return tags
}

// Carried holds what [Mirror.Nodes] has copied.
type Carried struct {
	Result
	Nodes   int       // whose overlays are there
	Expires time.Time // of what expires first: a node that holds what has expired takes no other overlay from then on
	First   string    // what that is, for people
}

// Nodes copies what nodes need to come up where nothing else is to be had: their overlays,
// the layers that those name, images of services, what disks start, and fleet:current; of one
// node, or of all where none is named. It needs a policy.
func (m *Mirror) Nodes(ctx context.Context, name string) (*Carried, error) {
	if err := m.verify(ctx, m.From); err != nil {
		return nil, err
	}
	here, err := m.From.Find(ctx, *m.Policy)
	if err != nil {
		return nil, err
	}
	rows, err := here.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if name != "" {
		row, ok := rows[name]
		if !ok {
			return nil, cli.Usage("publish it first: 'caisson publish'", "%s has no overlay of node %q", m.From.Registry.Ref(), name)
		}
		rows = map[string]spec.Published{name: row}
	}
	var layers []string
	for _, row := range rows {
		if row.Layer != "" && !slices.Contains(layers, row.Layer) {
			layers = append(layers, row.Layer)
		}
	}
	slices.Sort(layers)
	loaders, err := m.From.Loaders(ctx)
	if err != nil {
		return nil, err
	}
	result, err := m.start(func(r *run) error {
		if err := r.copy(ctx, oci.RepoLayer, plain.Each(layers, kept)...); err != nil {
			return err
		}
		if err := r.some(ctx, oci.RepoService, isKept); err != nil {
			return err
		}
		if err := r.copy(ctx, oci.RepoLoader, plain.Each(loaders, func(l spec.Loader) named { return kept(l.Manifest) })...); err != nil {
			return err
		}
		if err := r.overlays(ctx, tagsOf(rows)); err != nil {
			return err
		}
		list, err := r.resolve(ctx, oci.RepoFleet, []string{"current"})
		if err != nil {
			return err
		}
		return r.copy(ctx, oci.RepoFleet, list...)
	})
	if err != nil {
		return nil, err
	}
	c := &Carried{Result: *result, Nodes: len(rows), Expires: here.CurrentExpires(), First: "fleet:current"}
	for _, node := range plain.Names(maps.Keys(rows)) {
		if at := time.Unix(rows[node].Expires, 0); at.Before(c.Expires) {
			c.Expires, c.First = at, "the overlay of "+node
		}
	}
	return c, nil
}
