// SPDX-License-Identifier: Apache-2.0

// Package published reads a fleet that is published, and checks all of it before any word is used:
// what a registry serves is compared with the site's keys and threshold, with itself and with what
// is remembered ([Memory]). The lists in checks.go, cut.go, shards.go, generation.go and layers.go
// are the whole rule; what a check needs of a node's decision it asks package trust.
//
// It writes nothing: who changes a fleet (package publish) goes on from its [State], since what is
// signed again would else be the registry's choice. What plans a fleet, changes it, copies it or
// shows what it was given imports it.
package published

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Reader reads a fleet in a registry.
type Reader struct {
	Registry *registry.Registry
	Now      time.Time
	Say      func(format string, args ...any)

	Trust         *Policy         // for who has no site; nil trusts the signers alone, all of which must have signed
	Signers       []crypto.Signer // who sign what comes of it: operators, or those of a rescue; none for who only reads
	Memory        *Memory         // nil remembers nothing
	NewFleet      bool            // a registry without a fleet is expected
	AcceptExpired bool            // what is published may have expired
	Dry           bool            // nothing that comes of it is signed by a key of the fleet, written or remembered
	Kept          *Shards         // of the fleet's index as it was read last; nil reads all of it again
	Agent         *trust.Rules    // by which nodes decide; nil is all that this release's agent has

	rules *rules // nil is whole
}

// State holds the published documents that passed every check. Who changes the fleet goes on
// from it, and changes it in step with what is written.
type State struct {
	Policy   Policy            // that of the site, completed from the index
	Manifest string            // digest of fleet:index's manifest
	Index    *index.Index      // nil where nothing is published
	Digest   string            // of its document
	By       []string          // ids of the keys that signed it
	Current  *trust.FleetState // nil where nothing is published
	Seen     Seen              // what was remembered, raised to what was read
	Loaders  []spec.Loader     // of fleet:current

	newest time.Time // newest time of issue of all that is known
}

// Purpose says what a fleet is read for.
type Purpose struct {
	Publish bool // everything is compiled from the site: a cut publish may be healed
	Raise   bool // the epoch rises, which ends numbers that somebody ran ahead with
	Half    bool // what a publish has left half done, or is at, is of interest or can be put right

	index bool // how far fleet:index is, and no more
}

// rules are all checks of this package; only its tests use others than [whole].
type rules struct {
	absent  check.List[*looked]
	index   check.List[*looked]
	shard   check.List[*lookedShard]
	current check.List[*looked]
	overlay check.List[*Signed]
	layers  check.List[*lookedLayers]
	older   check.List[*Succession]
	clock   check.List[*times]
	past    check.List[*looked]
}

var whole = rules{absentChecks, indexChecks, shardChecks, currentChecks, overlayChecks, layerChecks, successionChecks,
	clockChecks, pastChecks}

func (r *Reader) allRules() rules {
	if r.rules != nil {
		return *r.rules
	}
	return whole
}

// AgentRules are those of the nodes, whose decision is asked before and after what is signed.
func (r *Reader) AgentRules() *trust.Rules { return cmp.Or(r.Agent, trust.All()) }

// look reads fleet:index and fleet:current and checks both.
func (r *Reader) look(ctx context.Context, policy Policy, why Purpose) (*State, error) {
	policy, err := r.Follow(ctx, policy, why.Publish && policy.Site)
	if err != nil {
		return nil, err
	}
	l := &looked{r: r, policy: policy, why: why}
	l.seen, l.known = r.Memory.At(r.Registry.Ref().String())
	v := &State{Policy: policy, Seen: l.seen}
	if l.known && policy.Fleet == "" {
		l.policy.Fleet = l.seen.Fleet
	}
	c, err := Document(ctx, r.Registry.Source(), "index", oci.TypeFleetIndex, maxIndex)
	if errors.Is(err, oci.ErrNotFound) {
		l.what = "fleet:index"
		return v, r.allRules().absent.Run(l)
	}
	if err != nil {
		return nil, err
	}
	l.candidate = c
	if err := r.allRules().index.Run(l); err != nil {
		return nil, fmt.Errorf("fleet:index: %w", err)
	}
	r.Kept.only(l.index)
	v.Index, v.Digest, v.Manifest, v.By = r.openIndex(l.index), oci.Digest(c.Document), c.Manifest, l.by
	if err := v.complete(); err != nil {
		return nil, err
	}
	if why.index {
		return v, nil
	}
	l.policy = v.Policy
	indexStamp, issued := l.stamp(), l.said.IssuedAt
	c, err = Document(ctx, r.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet)
	switch {
	case errors.Is(err, oci.ErrNotFound):
		l.what = "fleet:current"
		if err := r.allRules().absent.Run(l); err != nil {
			return nil, err
		}
		v.Current = &trust.FleetState{}
	case err != nil:
		return nil, err
	default:
		l.candidate = c
		if err := r.allRules().current.Run(l); err != nil {
			return nil, fmt.Errorf("fleet:current: %w", err)
		}
		v.Current, v.Loaders = l.fresh, l.fresh.Loaders
		v.Seen.Current = v.Seen.Current.Newer(Stamp{Digest: oci.Digest(c.Document), IssuedAt: l.fresh.IssuedAt})
	}
	v.Seen.Fleet, v.Seen.Epoch, v.Seen.Generation = v.Index.Root.Fleet, v.Index.Root.Epoch, v.Index.Root.Generation
	v.Seen.Index = v.Seen.Index.Newer(indexStamp)
	v.newest = latest(issued, v.Current.IssuedAt, v.Seen.Index.IssuedAt, v.Seen.Current.IssuedAt)
	return v, nil
}

// complete takes from the verified index what a policy without a site lacks.
func (v *State) complete() error {
	operator, release := v.Policy.Operator, v.Policy.Release
	var err error
	if operator == nil {
		if operator, err = sign.ParsePublics(v.Index.Root.Operator); err != nil {
			return err
		}
	}
	if release == nil {
		if release, err = sign.ParsePublics(v.Index.Root.Release); err != nil {
			return err
		}
	}
	v.Policy.Fleet, v.Policy.Operator, v.Policy.Release = v.Index.Root.Fleet, operator, release
	if v.Policy.Lifetime == 0 {
		v.Policy.Lifetime = time.Duration(v.Index.Root.Lifetime) * time.Second
	}
	return nil
}

// Unpublished is the error where a fleet must be there, and none is.
func (r *Reader) Unpublished() error {
	return cli.WithHint(fmt.Errorf("%s %w", r.Registry.Ref(), ErrUnpublished), "is that its prefix? 'caisson publish' makes a fleet")
}

// ErrUnpublished is returned where a registry holds no fleet yet.
var ErrUnpublished = errors.New("holds no published fleet")

// maxIndex holds some 200,000 nodes.
const maxIndex = 64 << 20

// Document reads a signed document of the fleet without verifying it.
func Document(ctx context.Context, src oci.Source, tag, kind string, limit int64) (trust.Candidate, error) {
	resp, err := src.Manifest(ctx, oci.RepoFleet, tag, "")
	if err != nil {
		return trust.Candidate{}, err
	}
	c := trust.Candidate{Manifest: resp.Digest}
	if c.Document, c.Bundles, err = oci.ReadDocument(ctx, src, resp, oci.Artifact{Repo: oci.RepoFleet, Type: kind, Limit: limit}); err != nil {
		return c, fmt.Errorf("fleet:%s: %w", tag, err)
	}
	return c, nil
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Trusted returns the policy for what is published, where no site is at hand.
func (r *Reader) Trusted() Policy {
	if r.Trust != nil {
		return *r.Trust
	}
	var policy Policy
	seen := map[string]bool{}
	for _, s := range r.Signers {
		if pub, err := sign.NewVerifier(s.Public()); err == nil && !seen[pub.ID()] {
			seen[pub.ID()] = true
			policy.Operator = append(policy.Operator, pub)
		}
	}
	policy.Threshold = len(policy.Operator)
	r.Say("no site: what is published must be signed by %s", allOf(policy.Threshold))
	return policy
}

func allOf(n int) string {
	if n == 1 {
		return "the key that signs now"
	}
	return fmt.Sprintf("all %d keys that sign now", n)
}

// Rejected returns the reject list.
func (v *State) Rejected() []string {
	if v.Current == nil {
		return nil
	}
	return v.Current.Reject
}
