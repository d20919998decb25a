// SPDX-License-Identifier: Apache-2.0

// Package mirror copies a published fleet, or one of its layers, to another place:
// behind an air gap, to a second site, from a canary's registry to production's.
//
// It publishes nothing: what arrives has the digests and signatures that it had. It
// decides what belongs to a fleet, whether it may be copied, and in which order nodes
// must find it: layers and images of services, overlays, then fleet:index and fleet:current. Moving the
// bytes is oci/transfer. Only cmd/caisson imports it.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/transfer"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Mirror copies from one publisher's place to another's. They read only.
type Mirror struct {
	From, To *publish.Publisher
	Policy   *publish.Policy // what is copied is verified with it; nil copies anything
	Say      func(format string, args ...any)
	Dry      bool // the result says what would be copied, and nothing is
}

// Result is what copy -o json prints.
type Result struct {
	From   string   `json:"from"`
	To     string   `json:"to"`
	Copied []Copied `json:"copied"`
	DryRun bool     `json:"dryRun,omitempty"` // all of it would be so: nothing was copied
}

// Copied is one artifact in a [Result]. What was there already is in the list, too,
// without blobs and bytes.
type Copied struct {
	Repository string   `json:"repository"` // layer, service, node or fleet
	Digest     string   `json:"digest"`
	Tags       []string `json:"tags"`
	transfer.Moved
}

// run is one copy at work.
type run struct {
	*Mirror
	transfer *transfer.Transfer
	policy   *publish.Policy // completed from the index
	result   *Result
}

// start opens the destination for many writes as one, lets do copy, and ends it.
func (m *Mirror) start(do func(*run) error) (_ *Result, err error) {
	r := &run{m, &transfer.Transfer{From: m.From.Registry, To: m.To.Registry, Say: m.Say}, m.Policy,
		&Result{From: m.From.Registry.Ref().String(), To: m.To.Registry.Ref().String(), Copied: []Copied{}}}
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
			func() error { return r.kept(ctx, oci.RepoService) },
			func() error { return r.kept(ctx, oci.RepoLoader) },
			func() error { return r.overlays(ctx, nodes) },
			func() error { return r.documents(ctx) },
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
func (m *Mirror) verify(ctx context.Context, p *publish.Publisher) error {
	report, err := p.Verify(ctx, *m.Policy, nil)
	if err != nil {
		return err
	}
	for _, c := range report.Findings {
		if c.Verdict == "expired" {
			return cli.WithHint(refusal.New(refusal.Expired, "%s: %s %s", p.Registry.Ref(), c.What, c.Detail), "'caisson refresh "+p.Registry.Ref().String()+"' signs it anew; then copy")
		}
		if c.Verdict != "ok" {
			return cli.WithHint(refusal.New(refusal.Code(c.Verdict), "%s: %s: %s", p.Registry.Ref(), c.What, c.Detail), "'caisson verify' lists all of it; --unverified copies it all the same")
		}
	}
	return nil
}

// nodes returns the tags to copy of the node repository: of the nodes in the verified
// index, of their machines and of the shards of all generations; or all.
func (r *run) nodes(ctx context.Context) ([]string, error) {
	if r.policy == nil {
		return r.From.Registry.Tags(ctx, oci.RepoNode)
	}
	here, err := r.From.Find(ctx, *r.policy)
	if err != nil {
		return nil, err
	}
	there, err := r.To.Find(ctx, *r.policy)
	if err != nil {
		return nil, fmt.Errorf("what %s holds: %w", r.To.Registry.Ref(), err)
	}
	if newer(there.Floor(), here.Floor()) {
		return nil, cli.WithHint(refusal.New(refusal.Rollback, "%s holds generation %d of epoch %d, this is generation %d of epoch %d",
			r.To.Registry.Ref(), there.Floor().Generation, there.Floor().Epoch, here.Floor().Generation, here.Floor().Epoch),
			"nodes there would refuse it; is it copied the wrong way round?")
	}
	policy := here.Policy()
	r.policy = &policy
	rows, err := here.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := r.From.Registry.Tags(ctx, oci.RepoNode)
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return nil, err
	}
	shards = slices.DeleteFunc(shards, func(tag string) bool { return !publish.IsShard(tag) })
	return append(tagsOf(rows), shards...), nil
}

func newer(a, b spec.Floor) bool {
	return a.Epoch > b.Epoch || a.Epoch == b.Epoch && a.Generation > b.Generation
}

// sorted returns tags with the ones that name what is newest at the end.
func sorted(tags []string) []string {
	last := map[string]int{"index": 1, "current": 2}
	slices.SortFunc(tags, func(a, b string) int {
		if d := last[a] - last[b]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return tags
}
