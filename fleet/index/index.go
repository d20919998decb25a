// SPDX-License-Identifier: Apache-2.0

// Package index is the table of what a fleet's nodes run: a root, and one row a node
// in shards. A node's shard follows from the hash of its name, so that a row is found
// by reading one shard, and changed by writing one.
//
// It knows neither how shards are stored nor whose word counts: fleet/publish
// reads, checks and signs. Only fleet/... imports it.
package index

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caisson-os/caisson/spec"
)

// Rows are published nodes by name.
type Rows = map[string]spec.Published

// Load reads shard n of an index, as its root names it. What it returns is not
// changed afterwards.
type Load func(ctx context.Context, n int) (Rows, error)

// Put stores a shard and returns the digest of its manifest.
type Put func(ctx context.Context, shard spec.FleetShard) (string, error)

// Index is an index that is read as far as it is asked for. It may be read by several
// goroutines at a time; one that changes it must be alone.
type Index struct {
	Root spec.FleetIndex // Shards are those of the last Store

	load  Load
	mu    sync.Mutex
	read  []Rows                     // by shard; nil where it was not read
	edits map[string]*spec.Published // since the last Store; nil is removed
}

// New returns an index without nodes. No shard of it is stored yet.
func New(root spec.FleetIndex) *Index {
	x := &Index{Root: root, edits: map[string]*spec.Published{}}
	x.Root.Shards = nil
	return x
}

// Open returns the index of a root that names shards.
func Open(root spec.FleetIndex, load Load) *Index {
	return &Index{Root: root, load: load, read: make([]Rows, len(root.Shards)), edits: map[string]*spec.Published{}}
}

// Fork returns a copy to change. What was read need not be read again.
func (x *Index) Fork() *Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	y := &Index{Root: x.Root, load: x.load, read: slices.Clone(x.read), edits: maps.Clone(x.edits)}
	y.Root.Shards = slices.Clone(x.Root.Shards)
	return y
}

// Forget lets go of the shards that were read, which are read again when they are asked for.
func (x *Index) Forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.read)
}

// Row returns a node's row, and whether there is one.
func (x *Index) Row(ctx context.Context, name string) (row spec.Published, ok bool, err error) {
	if edit, edited := x.edits[name]; edited {
		if edit == nil {
			return row, false, nil
		}
		return *edit, true, nil
	}
	if len(x.Root.Shards) == 0 {
		return row, false, nil
	}
	rows, err := x.shard(ctx, Of(name, len(x.Root.Shards)))
	row, ok = rows[name]
	return row, ok, err
}

// All returns all rows, in a map of the caller's own.
func (x *Index) All(ctx context.Context) (Rows, error) {
	n := len(x.Root.Shards)
	if err := Each(ctx, n, func(ctx context.Context, i int) error {
		_, err := x.shard(ctx, i)
		return err
	}); err != nil {
		return nil, err
	}
	all := make(Rows, x.Len()+len(x.edits))
	for i := range n {
		maps.Copy(all, x.read[i])
	}
	apply(all, x.edits)
	return all, nil
}

// Set gives a node a row.
func (x *Index) Set(name string, row spec.Published) { x.edits[name] = &row }

// Remove takes a node's row away.
func (x *Index) Remove(name string) { x.edits[name] = nil }

// Least returns the least generation of all nodes, 0 where there are none. It is
// that of the last Store.
func (x *Index) Least() (least uint64) {
	for _, s := range x.Root.Shards {
		if s.Nodes > 0 && (least == 0 || s.Least < least) {
			least = s.Least
		}
	}
	return least
}

// Store stores the shards that have changed, and names them in the root. A fleet
// that has outgrown its shards gets twice as many, all of them new.
func (x *Index) Store(ctx context.Context, put Put) error {
	n := len(x.Root.Shards)
	if n > 0 && len(x.edits) == 0 {
		return nil
	}
	nodes, changed := x.Len(), map[int]map[string]*spec.Published{} // edits by shard
	for name, edit := range x.edits {
		if n == 0 {
			break
		}
		i := Of(name, n)
		rows, err := x.shard(ctx, i)
		if err != nil {
			return err
		}
		switch _, there := rows[name]; {
		case there && edit == nil:
			nodes--
		case !there && edit != nil:
			nodes++
		}
		if changed[i] == nil {
			changed[i] = map[string]*spec.Published{}
		}
		changed[i][name] = edit
	}
	if n == 0 || Count(nodes) != n {
		all, err := x.All(ctx)
		if err != nil {
			return err
		}
		n = Count(len(all))
		x.Root.Shards, x.read = make([]spec.Shard, n), split(all, n)
		clear(changed)
		for i := range n {
			changed[i] = nil // the edits are in it
		}
	}
	numbers := slices.Sorted(maps.Keys(changed))
	if err := Each(ctx, len(numbers), func(ctx context.Context, k int) error {
		i := numbers[k]
		rows := x.read[i]
		if changed[i] != nil {
			rows = maps.Clone(rows)
			apply(rows, changed[i])
		}
		digest, err := put(ctx, spec.FleetShard{APIVersion: spec.APIVersion, Kind: spec.KindFleetShard, Fleet: x.Root.Fleet, Nodes: rows})
		x.Root.Shards[i], x.read[i] = Describe(digest, rows), rows
		return err
	}); err != nil {
		return err
	}
	x.edits = map[string]*spec.Published{}
	return nil
}

// Len returns the number of nodes as of the last Store.
func (x *Index) Len() (n int) {
	for _, s := range x.Root.Shards {
		n += s.Nodes
	}
	return n
}

func (x *Index) shard(ctx context.Context, i int) (Rows, error) {
	x.mu.Lock()
	rows := x.read[i]
	x.mu.Unlock()
	if rows != nil {
		return rows, nil
	}
	rows, err := x.load(ctx, i)
	if err != nil {
		return nil, err
	}
	if rows == nil {
		rows = Rows{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read[i] = rows
	return rows, nil
}

func apply(rows Rows, edits map[string]*spec.Published) {
	for name, edit := range edits {
		if edit == nil {
			delete(rows, name)
		} else {
			rows[name] = *edit
		}
	}
}

func split(rows Rows, n int) []Rows {
	out := make([]Rows, n)
	for i := range n {
		out[i] = Rows{}
	}
	for name, row := range rows {
		out[Of(name, n)][name] = row
	}
	return out
}

// Describe returns what a root says of a shard.
func Describe(digest string, rows Rows) spec.Shard {
	s := spec.Shard{Manifest: digest, Nodes: len(rows)}
	for _, row := range rows {
		if s.Least == 0 || row.Generation < s.Least {
			s.Least = row.Generation
		}
	}
	return s
}

const (
	perShard  = 256  // nodes, at most, on average: a shard of it and its manifest have some 220 kB
	maxShards = 2048 // a root of it has some 250 kB
)

// Count returns the number of shards of a fleet: a power of two.
func Count(nodes int) int {
	n := 1
	for n < maxShards && nodes > n*perShard {
		n *= 2
	}
	return n
}

// Of returns the shard of a node among n, a power of two.
func Of(name string, n int) int {
	sum := sha256.Sum256([]byte(name))
	return int(binary.BigEndian.Uint32(sum[:4]) >> (32 - bits.TrailingZeros(uint(n))))
}

// workers is how many shards or nodes are in hand at a time; a registry on the same machine
// gains nothing beyond it.
const workers = 8

// Each calls f for 0 to n-1, several at a time. The first error ends it.
func Each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(workers, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// Find returns what f finds of each of some nodes, several at once. What is zero is left out.
func Find[T comparable](ctx context.Context, names iter.Seq[string], f func(context.Context, string) (T, error)) (map[string]T, error) {
	var mu sync.Mutex
	list, found := slices.Collect(names), map[string]T{}
	err := Each(ctx, len(list), func(ctx context.Context, i int) error {
		one, err := f(ctx, list[i])
		if zero := *new(T); err != nil || one == zero {
			return OfNode(list[i], err)
		}
		mu.Lock()
		defer mu.Unlock()
		found[list[i]] = one
		return nil
	})
	return found, err
}

// OfNode says which node an error is about.
func OfNode(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("node %s: %w", name, err)
	}
	return err
}
