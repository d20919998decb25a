// SPDX-License-Identifier: Apache-2.0

package published

import (
	"testing"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/spec"
)

// A plan does not change once it is signed: it is read once, as long as the index names it.
func TestAPlanIsReadOnce(t *testing.T) {
	root := spec.FleetIndex{Fleet: "metal-a", Rollouts: map[string]spec.Rollout{"a": {Plan: "1"}}}
	kept, reads := &Shards{}, 0
	plan := func(rollout, digest string) {
		t.Helper()
		_, err := kept.plan(planned{rollout, digest}, func() (*spec.RolloutPlan, error) { reads++; return &spec.RolloutPlan{}, nil })
		must(t, err)
	}
	kept.only(root)
	for range 3 {
		plan("a", "1")
		kept.only(root)
	}
	if reads != 1 {
		t.Errorf("it was read %d times", reads)
	}
	plan("b", "1") // which was signed for another rollout
	root.Rollouts = nil
	kept.only(root)
	if plan("a", "1"); reads != 3 || len(kept.plans) != 1 {
		t.Errorf("%d reads, %d plans are kept", reads, len(kept.plans))
	}
}

// Of the shards that were read those of the newest index are kept, and no others.
func TestShardsOfAnotherIndexAreForgotten(t *testing.T) {
	a, b, c := spec.Shard{Manifest: "a"}, spec.Shard{Manifest: "b"}, spec.Shard{Manifest: "c"}
	kept := &Shards{}
	kept.only(spec.FleetIndex{Fleet: "metal-a", Shards: []spec.Shard{a, b}})
	for _, shard := range []spec.Shard{a, b, c} {
		kept.keep(shard, index.Rows{})
	}
	kept.only(spec.FleetIndex{Fleet: "metal-a", Shards: []spec.Shard{b, c}})
	if kept.of(a) != nil || kept.of(b) == nil || kept.of(c) != nil || len(kept.read) != 2 {
		t.Errorf("kept are %v", kept.read)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
