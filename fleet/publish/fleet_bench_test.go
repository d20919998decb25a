// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFleet is the life of a fleet in a directory, verb by verb, each with the processor time of
// a node; CAISSON_NODES adds a size, as 1000000. A verb whose time grows with the number of nodes
// more than that number does is seen beside the smaller size.
func BenchmarkFleet(b *testing.B) {
	for _, n := range sizes(b) {
		b.Run(fmt.Sprint("nodes=", n), func(b *testing.B) {
			spent := map[string]time.Duration{}
			for b.Loop() {
				liveOnce(b, n, spent)
			}
			for verb, took := range spent {
				b.ReportMetric(float64(took.Microseconds())/float64(b.N*n), "cpu-µs/node-"+verb)
			}
			b.ReportMetric(0, "ns/op") // those of the verbs say more
		})
	}
}

func liveOnce(b *testing.B, n int, spent map[string]time.Duration) {
	b.Helper()
	f := newFleet(b)
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("node-%06d", i), Doc: func() ([]byte, error) { return numbered(i) }}
	}
	trust := f.policy
	f.Trust = &trust
	spend := func(verb string, act func() error) {
		b.Helper()
		f.Now = f.Now.Add(time.Minute)
		began := processorTime(b)
		if err := act(); err != nil {
			b.Fatal(verb, err)
		}
		spent[verb] += processorTime(b) - began
	}
	publish := func(nodes []Node, want int) func() error {
		return func() error {
			r, err := f.Publish(b.Context(), f.policy, nodes, Options{})
			if err == nil && len(r.Published) != want {
				err = fmt.Errorf("%d nodes are published, want %d", len(r.Published), want)
			}
			return err
		}
	}
	spend("publish", publish(nodes, n))
	spend("publish-again", publish(nodes, 0))
	other := slices.Clone(nodes)
	other[0].Doc = func() ([]byte, error) { return withValue(0, n) }
	spend("publish-one", publish(other, 1))
	spend("hold-one", func() error {
		_, err := f.Freeze(b.Context(), Hold{Nodes: []string{nodes[1].Name}, By: By{Author: "eve", Reason: "why"}})
		return err
	})
	spend("refresh", func() error { _, err := f.Refresh(b.Context(), Lists{}); return err })
	spend("verify", func() error {
		r, err := f.Verify(b.Context(), f.policy, nil)
		if err == nil && !r.OK() {
			err = fmt.Errorf("%+v", r.Findings)
		}
		return err
	})
	spend("prune", func() error {
		_, err := f.Prune(b.Context(), Keep{Versions: 2, Generations: 2}, false)
		return err
	})
}

// processorTime is what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
