// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// A shard of fleet:index is an artifact in the repository of the nodes: a document,
// which the signed root names by digest, and as further layers the overlays of its
// rows and those before them. So a generation's content stays as long as its root's
// shards have a tag, whatever the nodes' own tags lead to.

// lookedShard is one shard on its way through the checks.
type lookedShard struct {
	document []byte
	kept     bool // shard was decoded at an earlier look
	n        int
	root     spec.FleetIndex
	shard    spec.FleetShard
}

// shardChecks is the rule for a shard, given a good root.
var shardChecks = check.List[*lookedShard]{
	{Name: "shard form", OK: shardParses},
	{Name: "shard rows", OK: rowsBelong},
	{Name: "shard numbers", OK: rowsAreBounded},
}

func shardParses(l *lookedShard) error {
	if l.kept {
		return nil
	}
	if err := spec.Decode(l.document, &l.shard); err != nil {
		return refusal.New(refusal.Overlay, "%w", err)
	}
	if l.shard.APIVersion != spec.APIVersion || l.shard.Kind != spec.KindFleetShard || l.shard.Fleet != l.root.Fleet {
		return refusal.New(refusal.Overlay, "the document is %.40q %.40q of fleet %.40q", l.shard.APIVersion, l.shard.Kind, l.shard.Fleet)
	}
	return nil
}

// rowsBelong: a row in another shard than its name's would be found by some readers
// and not by others.
func rowsBelong(l *lookedShard) error {
	for name := range l.shard.Nodes {
		if of := index.Of(name, len(l.root.Shards)); of != l.n {
			return refusal.New(refusal.Contradiction, "node %.80q belongs into shard %d", name, of)
		}
	}
	return nil
}

func rowsAreBounded(l *lookedShard) error {
	if got, said := index.Describe(l.root.Shards[l.n].Manifest, l.shard.Nodes), l.root.Shards[l.n]; got != said {
		return refusal.New(refusal.Contradiction, "it has %d nodes, the least at generation %d; fleet:index says %d, %d",
			got.Nodes, got.Least, said.Nodes, said.Least)
	}
	return bounded(l.shard.Nodes, l.root.Generation)
}

// bounded refuses rows ahead of their fleet.
func bounded(rows index.Rows, generation uint64) error {
	for name, n := range rows {
		if n.Generation > generation {
			return refusal.New(refusal.BadNumber, "node %q is at generation %d, the fleet at %d", name, n.Generation, generation)
		}
	}
	return nil
}

// maxShard holds some 100,000 nodes; an index has more shards before that.
const maxShard = 32 << 20

// openIndex returns the index of a checked root.
func (r *Reader) openIndex(root spec.FleetIndex) *index.Index {
	if len(root.Shards) == 0 {
		return index.New(root)
	}
	return index.Open(root, func(ctx context.Context, n int) (index.Rows, error) {
		l := &lookedShard{n: n, root: root}
		var err error
		if l.shard.Nodes = r.Kept.of(root.Shards[n]); l.shard.Nodes != nil {
			l.kept = true
		} else {
			err = r.readShard(ctx, l)
		}
		if err == nil {
			err = r.allRules().shard.Run(l)
		}
		if err != nil {
			return nil, fmt.Errorf("fleet:index: shard %d: %w", n, err)
		}
		r.Kept.keep(root.Shards[n], l.shard.Nodes)
		return l.shard.Nodes, nil
	})
}

// Shards are those of a fleet's index as it was read last, and the plans of its rollouts: who looks
// again and again reads what has changed. The zero value is empty. It may be used by several
// goroutines; nil keeps nothing.
type Shards struct {
	mu    sync.Mutex
	fleet string
	read  map[spec.Shard]index.Rows // nil where it was not read
	plans map[planned]*spec.RolloutPlan
}

// planned names the plan of a rollout: its manifest's digest vouches for what it says.
type planned struct{ rollout, digest string }

// only forgets the shards that are not of an index, and makes room for those that are.
func (s *Shards) only(root spec.FleetIndex) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[spec.Shard]index.Rows, len(root.Shards))
	for _, shard := range root.Shards {
		if next[shard] = nil; s.fleet == root.Fleet {
			next[shard] = s.read[shard]
		}
	}
	plans := map[planned]*spec.RolloutPlan{}
	for name, r := range root.Rollouts {
		if p := (planned{name, r.Plan}); s.fleet == root.Fleet && s.plans[p] != nil {
			plans[p] = s.plans[p]
		}
	}
	s.fleet, s.read, s.plans = root.Fleet, next, plans
}

// plan returns the plan of a rollout, read where it is not kept.
func (s *Shards) plan(of planned, read func() (*spec.RolloutPlan, error)) (*spec.RolloutPlan, error) {
	if s == nil {
		return read()
	}
	s.mu.Lock()
	kept := s.plans[of]
	s.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	plan, err := read()
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.plans == nil {
			s.plans = map[planned]*spec.RolloutPlan{}
		}
		s.plans[of] = plan // the next look forgets it where the rollout is not of the index any more
	}
	return plan, err
}

// of returns the rows of a shard; nil where they were not read.
func (s *Shards) of(shard spec.Shard) index.Rows {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read[shard]
}

// keep notes the rows of a shard, where it is of the index that was read last.
func (s *Shards) keep(shard spec.Shard, rows index.Rows) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.read[shard]; there {
		s.read[shard] = rows
	}
}

func (r *Reader) readShard(ctx context.Context, l *lookedShard) error {
	src := r.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, l.root.Shards[l.n].Manifest, "")
	if errors.Is(err, oci.ErrNotFound) {
		return cli.WithHint(refusal.New(refusal.Missing, "%s: %w", l.root.Shards[l.n].Manifest, err),
			"find out what removes from the registry the manifests of its tags keep-…")
	}
	if err != nil {
		return err
	}
	l.document, err = oci.ReadNamed(ctx, src, resp, oci.Artifact{Repo: oci.RepoNode, Type: oci.TypeFleetShard, Limit: maxShard})
	return err
}

// ReadRoot reads the root that a tag leads to, for who asks only what must stay: no signature is
// verified.
func ReadRoot(ctx context.Context, src oci.Source, tag string) (root spec.FleetIndex, err error) {
	c, err := Document(ctx, src, tag, oci.TypeFleetIndex, maxIndex)
	if err != nil {
		return root, err
	}
	if err = spec.Decode(c.Document, &root); err == nil {
		err = shardsAreCounted(root)
	}
	if err != nil {
		return root, fmt.Errorf("fleet:%s: %w", tag, err)
	}
	return root, nil
}

// Rows returns all rows of a root.
func (r *Reader) Rows(ctx context.Context, root spec.FleetIndex) (index.Rows, error) {
	return r.openIndex(root).All(ctx)
}

// keepPrefix begins the tags of shards.
const keepPrefix = "keep-sha256-"

// IsShard reports whether a tag of the nodes' repository is that of a shard.
func IsShard(tag string) bool { return strings.HasPrefix(tag, keepPrefix) }

// ImageOf returns the digest of the image that a tag of the services' repository keeps.
func ImageOf(tag string) (string, bool) {
	if !IsShard(tag) { // both are spelled alike
		return "", false
	}
	of := digest.FromHex(tag[len(keepPrefix):])
	return of, digest.Valid(of)
}
