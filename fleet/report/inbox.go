// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Take takes a report of a node, or says why it does not count. An error that is neither
// about the report nor nil is one of who takes reports.
type Take func(ctx context.Context, node string, raw []byte) error

// Inbox is the repository of reports. It is read by one at a time.
//
// It asks by the names of nodes that are published, some at a time and in turn, so that
// tags of others cost nothing and a registry has time for nodes. What has not changed
// is not sent again. What a report counts for is decided as if the node had sent it.
type Inbox struct {
	From    oci.Source
	Take    Take
	Refuses func(error) bool // an error of Take is about the report

	after   string                // the node that was read last
	seen    map[string]seen       // by node
	trouble atomic.Pointer[error] // of the last look; nil before the first
}

// Trouble returns why not everything could be read at the last look, nil where it was.
// It may be asked while the box is read.
func (b *Inbox) Trouble() error {
	if err := b.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// seen holds what a node's tag led to.
type seen struct{ etag, digest string }

const (
	atOnce    = 8 // reports are asked for at a time
	maxFailed = 8 // requests may fail until a look ends: the registry is away
)

// Read reads the reports of so many of these nodes, which are sorted, and goes on next
// time after them. It returns why reports do not count, each once, by the names of
// their nodes; the error is of the registry, or of who takes them.
func (b *Inbox) Read(ctx context.Context, nodes []string, most int) (refused map[string]error, err error) {
	from, found := slices.BinarySearch(nodes, b.after)
	if found {
		from++
	}
	turn := slices.Concat(nodes[from:], nodes[:from])
	turn = turn[:min(most, len(turn))]
	now := make(map[string]seen, len(nodes))
	for _, n := range nodes { // what left the fleet is forgotten
		if s, ok := b.seen[n]; ok {
			now[n] = s
		}
	}
	b.seen, refused = now, map[string]error{}
	var mu sync.Mutex // of seen, refused and failed
	var failed []error
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, node := range turn {
		g.Go(func() error {
			mu.Lock()
			was, enough := b.seen[node], len(failed) >= maxFailed
			mu.Unlock()
			if enough {
				return nil
			}
			is, err := b.read(ctx, node, was)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && (refusal.Of(err) != "" || b.Refuses(err)) { // about this report: the others are read
				refused[node], err = err, nil
			}
			if err == nil {
				b.seen[node] = is
			} else {
				failed = append(failed, fmt.Errorf("read report:%s: %w", node, err))
			}
			return nil
		})
	}
	err = g.Wait() // no function of the group fails
	if len(failed) > 0 {
		err = failed[0] // one says enough
	}
	if len(turn) > 0 {
		b.after = turn[len(turn)-1] // one that cannot be read must not keep the others from being
	}
	b.trouble.Store(&err)
	return refused, err
}

// How the reports of a registry are kept read: some at a time, as it has nodes to answer, too.
const (
	keepEvery  = 20 * time.Second
	keepAtOnce = 200
	keepWithin = 5 * time.Minute
)

// Keep reads the reports of nodes until ctx ends; names returns them sorted, and whether this
// instance is the one that reads.
func (b *Inbox) Keep(ctx context.Context, names func() (nodes []string, reads bool), say func(format string, args ...any)) {
	failed := false
	for ctx.Err() == nil {
		if nodes, reads := names(); reads {
			within, cancel := context.WithTimeout(ctx, keepWithin)
			refused, err := b.Read(within, nodes, keepAtOnce)
			cancel()
			SayRefused(refused, say)
			if err != nil && !failed && ctx.Err() == nil {
				say("the reports in the registry are those of the last read: %v", err)
			}
			failed = err != nil
		}
		_ = stall.Rest(ctx, keepEvery) // the loop ends with ctx
	}
}

// SayRefused says which reports do not count, some of very many.
func SayRefused(refused map[string]error, say func(format string, args ...any)) {
	const most = 5
	names := plain.Names(maps.Keys(refused))
	for _, n := range names[:min(most, len(names))] {
		say("report:%s does not count: %s", n, plain.Line(refused[n].Error()))
	}
	if more := len(names) - most; more > 0 {
		say("and %s more do not count", plain.Count(more, "report"))
	}
}

// read reads one report, unless it is what it was.
func (b *Inbox) read(ctx context.Context, node string, was seen) (seen, error) {
	resp, err := b.From.Manifest(ctx, oci.RepoReport, node, was.etag)
	switch {
	case errors.Is(err, oci.ErrNotFound): // it reports in another way, or not yet
		return seen{}, nil
	case err != nil:
		return was, err
	case resp.NotModified || resp.Digest == was.digest:
		return was, nil
	}
	is := seen{resp.ETag, resp.Digest}
	raw, _, err := oci.ReadDocument(ctx, b.From, resp, oci.Artifact{Repo: oci.RepoReport, Type: oci.TypeReport, Limit: sign.MaxReport})
	if errors.Is(err, oci.ErrNotFound) {
		err = refusal.New(refusal.Shape, "what its manifest names is not there")
	}
	if err == nil {
		err = b.Take(ctx, node, raw)
	}
	return is, err
}
