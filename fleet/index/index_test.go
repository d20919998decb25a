// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// shelf keeps shards by digest, as a registry does.
type shelf struct {
	mu     sync.Mutex
	shards map[string]spec.FleetShard
	puts   int
}

func (s *shelf) put(_ context.Context, shard spec.FleetShard) (string, error) {
	raw, err := spec.Encode(shard)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	s.shards[digest.Of(raw)] = spec.FleetShard{Nodes: maps.Clone(shard.Nodes)}
	return digest.Of(raw), nil
}

func (s *shelf) open(root spec.FleetIndex) *Index {
	return Open(root, func(_ context.Context, n int) (Rows, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		shard, ok := s.shards[root.Shards[n].Manifest]
		if !ok {
			return nil, fmt.Errorf("no shard %d", n)
		}
		return shard.Nodes, nil
	})
}

// TestIndexIsATable changes indexes at random, stores them and opens them again:
// they hold what a map would.
func TestIndexIsATable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := &shelf{shards: map[string]spec.FleetShard{}}
	want := Rows{}
	root := spec.FleetIndex{Fleet: "metal-a"}
	x := New(root)
	for round := range 40 {
		for range r.IntN(120) {
			name := fmt.Sprintf("n%d", r.IntN(1500))
			if r.IntN(4) == 0 {
				x.Remove(name)
				delete(want, name)
				continue
			}
			row := spec.Published{Generation: uint64(1 + r.IntN(50)), Overlay: name}
			x.Set(name, row)
			want[name] = row
		}
		if r.IntN(2) == 0 {
			x = x.Fork()
		}
		name := fmt.Sprintf("n%d", r.IntN(1500))
		if got, ok, err := x.Row(t.Context(), name); err != nil || !cmp.Equal(got, want[name]) || ok != (want[name].Overlay != "") {
			t.Fatalf("round %d: Row(%s) = %+v, %v, %v", round, name, got, ok, err)
		}
		if err := x.Store(t.Context(), s.put); err != nil {
			t.Fatal(err)
		}
		if n := len(x.Root.Shards); n != Count(len(want)) || x.Len() != len(want) {
			t.Fatalf("round %d: %d shards, %d nodes; want %d, %d", round, n, x.Len(), Count(len(want)), len(want))
		}
		var least uint64
		for _, row := range want {
			if least == 0 || row.Generation < least {
				least = row.Generation
			}
		}
		if x.Least() != least {
			t.Fatalf("round %d: Least() = %d, want %d", round, x.Least(), least)
		}
		if r.IntN(2) == 0 {
			x = s.open(x.Root)
		}
		got, err := x.All(t.Context())
		if err != nil || !cmp.Equal(got, want) {
			t.Fatalf("round %d: %v\n%s", round, err, cmp.Diff(want, got))
		}
	}
	if len(want) < perShard {
		t.Errorf("%d nodes at the end: one shard did for all", len(want))
	}
}

// TestOneNodeIsOneShard: a change of one node of many stores one shard, and reads one.
func TestOneNodeIsOneShard(t *testing.T) {
	s := &shelf{shards: map[string]spec.FleetShard{}}
	x := New(spec.FleetIndex{})
	for i := range 5000 {
		x.Set(fmt.Sprintf("n%d", i), spec.Published{Generation: 1})
	}
	if err := x.Store(t.Context(), s.put); err != nil {
		t.Fatal(err)
	}
	if s.puts != 32 || len(x.Root.Shards) != 32 {
		t.Fatalf("%d shards, %d stored", len(x.Root.Shards), s.puts)
	}
	was, reads := x.Root.Shards, 0
	open := s.open(x.Root)
	load := open.load
	open.load = func(ctx context.Context, n int) (Rows, error) {
		reads++
		return load(ctx, n)
	}
	y := open.Fork()
	y.Set("n7", spec.Published{Generation: 2})
	if err := y.Store(t.Context(), s.put); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for i, shard := range y.Root.Shards {
		if shard != was[i] {
			changed++
		}
	}
	if s.puts != 33 || changed != 1 || reads != 1 {
		t.Errorf("%d shards stored, %d changed, %d read; want one each", s.puts-32, changed, reads)
	}
	if row, _, err := open.Row(t.Context(), "n7"); err != nil || row.Generation != 1 {
		t.Errorf("the index that was forked changed as well: %+v, %v", row, err)
	}
}

// TestAnErrorOfAShardIsOne: nothing is made up for a shard that cannot be read.
func TestAnErrorOfAShardIsOne(t *testing.T) {
	s := &shelf{shards: map[string]spec.FleetShard{}}
	x := s.open(spec.FleetIndex{Shards: []spec.Shard{{Manifest: "sha256:lost", Nodes: 1}}})
	if _, _, err := x.Row(t.Context(), "n0"); err == nil {
		t.Error("Row made up a shard")
	}
	if _, err := x.All(t.Context()); err == nil {
		t.Error("All made up a shard")
	}
	x.Set("n0", spec.Published{})
	if err := x.Store(t.Context(), s.put); err == nil {
		t.Error("Store made up a shard")
	}
}

// TestFewerNodesHaveFewerShards: what is left of a fleet is all there, and can grow again.
func TestFewerNodesHaveFewerShards(t *testing.T) {
	s := &shelf{shards: map[string]spec.FleetShard{}}
	x := New(spec.FleetIndex{})
	for _, n := range []int{1500, 10, 600, 0} {
		for i := range 1500 {
			if x.Remove(fmt.Sprintf("n%d", i)); i < n {
				x.Set(fmt.Sprintf("n%d", i), spec.Published{Generation: 1})
			}
		}
		if err := x.Store(t.Context(), s.put); err != nil {
			t.Fatal(err)
		}
		x = s.open(x.Root)
		if all, err := x.All(t.Context()); err != nil || len(all) != n || x.Len() != n || len(x.Root.Shards) != Count(n) {
			t.Errorf("%d of %d nodes in %d shards, %v", len(all), n, len(x.Root.Shards), err)
		}
	}
}

// TestForgottenIsReadAgain: what is forgotten is as it was, and a copy goes on with what was read.
func TestForgottenIsReadAgain(t *testing.T) {
	s := &shelf{shards: map[string]spec.FleetShard{}}
	x := New(spec.FleetIndex{})
	x.Set("n0", spec.Published{Generation: 1})
	if err := x.Store(t.Context(), s.put); err != nil {
		t.Fatal(err)
	}
	open, reads := s.open(x.Root), 0
	load := open.load
	open.load = func(ctx context.Context, n int) (Rows, error) {
		reads++
		return load(ctx, n)
	}
	row := func(x *Index, want int) {
		t.Helper()
		if row, ok, err := x.Row(t.Context(), "n0"); err != nil || !ok || row.Generation != 1 || reads != want {
			t.Errorf("%+v, %t, %v, %d reads, want %d", row, ok, err, reads, want)
		}
	}
	row(open, 1)
	fork := open.Fork()
	open.Forget()
	row(fork, 1)
	row(open, 2)
}
