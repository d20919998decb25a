// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// view holds the published documents that passed every check. A publisher uses
// no part of a registry's content but a view: what it signs again would else be
// the registry's choice.
type view struct {
	policy   Policy            // that of the site, completed from the index
	manifest string            // digest of fleet:index's manifest
	index    *index.Index      // nil where nothing is published
	root     string            // digest of its document
	by       []string          // ids of the keys that signed it
	current  *trust.FleetState // nil where nothing is published
	seen     Seen              // what was remembered, raised to what was read
	newest   time.Time         // newest time of issue of all that is known
	loaders  []spec.Loader     // of fleet:current
	torn     map[string]bool   // nodes whose tag a publish that was cut has moved, see adoptMoves
}

// purpose says what a view is for.
type purpose struct {
	publish bool // everything is compiled from the site: a cut publish may be healed
	raise   bool // the epoch rises, which ends numbers that somebody ran ahead with
	half    bool // what a publish has left half done, or is at, is of interest or can be put right
	index   bool // how far fleet:index is, and no more
}

// rules are all checks of this package; only its tests use others than [whole].
type rules struct {
	absent  check.List[*looked]
	index   check.List[*looked]
	shard   check.List[*lookedShard]
	current check.List[*looked]
	overlay check.List[*lookedOverlay]
	layers  check.List[*lookedLayers]
	older   check.List[*succession]
	clock   check.List[*times]
	past    check.List[*looked]
}

var whole = rules{absentChecks, indexChecks, shardChecks, currentChecks, overlayChecks, layerChecks, successionChecks,
	clockChecks, pastChecks}

func (p *Publisher) allRules() rules {
	if p.rules != nil {
		return *p.rules
	}
	return whole
}

// agentRules are those of the nodes, whose decision is asked before and after what is signed.
func (p *Publisher) agentRules() *trust.Rules {
	if p.agent != nil {
		return p.agent
	}
	return trust.All()
}

// look reads fleet:index and fleet:current and checks both.
func (p *Publisher) look(ctx context.Context, policy Policy, why purpose) (*view, error) {
	policy, err := p.Follow(ctx, policy, why.publish && policy.Site)
	if err != nil {
		return nil, err
	}
	l := &looked{p: p, policy: policy, why: why}
	l.seen, l.known = p.Memory.At(p.Registry.Ref().String())
	v := &view{policy: policy, seen: l.seen}
	if l.known && policy.Fleet == "" {
		l.policy.Fleet = l.seen.Fleet
	}
	c, err := document(ctx, p.Registry.Source(), "index", oci.TypeFleetIndex, maxIndex)
	if errors.Is(err, oci.ErrNotFound) {
		l.what = "fleet:index"
		return v, p.allRules().absent.Run(l)
	}
	if err != nil {
		return nil, err
	}
	l.candidate = c
	if err := p.allRules().index.Run(l); err != nil {
		return nil, fmt.Errorf("fleet:index: %w", err)
	}
	p.Kept.only(l.index)
	v.index, v.root, v.manifest, v.by = p.openIndex(l.index), oci.Digest(c.Document), c.Manifest, l.by
	if err := v.complete(); err != nil {
		return nil, err
	}
	if why.index {
		return v, nil
	}
	l.policy = v.policy
	indexStamp, issued := l.stamp(), l.said.IssuedAt
	c, err = document(ctx, p.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet)
	switch {
	case errors.Is(err, oci.ErrNotFound):
		l.what = "fleet:current"
		if err := p.allRules().absent.Run(l); err != nil {
			return nil, err
		}
		v.current = &trust.FleetState{}
	case err != nil:
		return nil, err
	default:
		l.candidate = c
		if err := p.allRules().current.Run(l); err != nil {
			return nil, fmt.Errorf("fleet:current: %w", err)
		}
		v.current, v.loaders = l.fresh, l.fresh.Loaders
		v.seen.Current = v.seen.Current.Newer(Stamp{Digest: oci.Digest(c.Document), IssuedAt: l.fresh.IssuedAt})
	}
	v.seen.Fleet, v.seen.Epoch, v.seen.Generation = v.index.Root.Fleet, v.index.Root.Epoch, v.index.Root.Generation
	v.seen.Index = v.seen.Index.Newer(indexStamp)
	v.newest = latest(issued, v.current.IssuedAt, v.seen.Index.IssuedAt, v.seen.Current.IssuedAt)
	return v, nil
}

// complete takes from the verified index what a policy without a site lacks.
func (v *view) complete() error {
	operator, release := v.policy.Operator, v.policy.Release
	var err error
	if operator == nil {
		if operator, err = sign.ParsePublics(v.index.Root.Operator); err != nil {
			return err
		}
	}
	if release == nil {
		if release, err = sign.ParsePublics(v.index.Root.Release); err != nil {
			return err
		}
	}
	v.policy.Fleet, v.policy.Operator, v.policy.Release = v.index.Root.Fleet, operator, release
	if v.policy.Lifetime == 0 {
		v.policy.Lifetime = time.Duration(v.index.Root.Lifetime) * time.Second
	}
	return nil
}

// published is a view of a fleet that must be there. While a publish is at work, or was
// cut, it has the rows before it.
func (p *Publisher) published(ctx context.Context, policy Policy) (*view, error) {
	v, err := p.look(ctx, policy, purpose{half: true})
	if err == nil && v.index == nil {
		err = p.unpublished()
	}
	return v, err
}

func (p *Publisher) unpublished() error {
	return cli.WithHint(fmt.Errorf("%s %w", p.Registry.Ref(), ErrUnpublished), "is that its prefix? 'caisson publish' makes a fleet")
}

// ErrUnpublished is returned where a registry holds no fleet yet.
var ErrUnpublished = errors.New("holds no published fleet")

// maxIndex holds some 200,000 nodes.
const maxIndex = 64 << 20

func document(ctx context.Context, src oci.Source, tag, kind string, limit int64) (trust.Candidate, error) {
	resp, err := src.Manifest(ctx, oci.RepoFleet, tag, "")
	if err != nil {
		return trust.Candidate{}, err
	}
	c := trust.Candidate{Tag: tag, Manifest: resp.Digest}
	if c.Document, c.Bundles, err = oci.ReadDocument(ctx, src, resp, oci.Artifact{Repo: oci.RepoFleet, Type: kind, Limit: limit}); err != nil {
		return c, fmt.Errorf("fleet:%s: %w", tag, err)
	}
	return c, nil
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
