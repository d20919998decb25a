// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
)

// BenchmarkFleet is the life of a fleet in a directory, verb by verb: the processor time of a node, the
// seconds that all take, and the process's memory at its peak in MiB. Publish and roll back are beside their floor: to sign the
// documents, and to copy the files that the directory then has. CAISSON_NODES adds a size; of 1000000 only
// publish, one of them and hold are run: a copy of the directory does not fit a small disk. A
// verb whose time grows with the number of nodes more than that number does is seen beside the smaller size.
func BenchmarkFleet(b *testing.B) {
	for _, n := range sizes(b) {
		b.Run(fmt.Sprint("nodes=", n), func(b *testing.B) {
			l := &life{B: b, spent: map[string]time.Duration{}, took: map[string]time.Duration{}, peak: map[string]int{}}
			for b.Loop() {
				l.live(n)
			}
			for verb, spent := range l.spent {
				b.ReportMetric(float64(spent.Microseconds())/float64(b.N*n), "cpu-µs/node-"+verb)
				b.ReportMetric(l.took[verb].Seconds()/float64(b.N), "s-"+verb)
				b.ReportMetric(float64(l.peak[verb]), "peak-MiB-"+verb)
			}
			if floor := l.spent["sign"] + l.spent["copy"]; floor > 0 {
				b.ReportMetric(l.spent["publish"].Seconds()/floor.Seconds(), "floors/publish")
				b.ReportMetric(l.spent["rollback"].Seconds()/floor.Seconds(), "floors/rollback")
			}
			b.ReportMetric(0, "ns/op") // those of the verbs say more
		})
	}
}

// life is what the verbs of a fleet's life took.
type life struct {
	*testing.B
	spent map[string]time.Duration // of processors
	took  map[string]time.Duration // by the clock
	peak  map[string]int           // of memory, in MiB
}

func (l *life) spend(verb string, act func() error) {
	l.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak begins anew
		l.Fatal(err)
	}
	began, since := processorTime(l.B), time.Now()
	if err := act(); err != nil {
		l.Fatal(verb, ": ", err)
	}
	l.spent[verb] += processorTime(l.B) - began
	l.took[verb] += time.Since(since)
	l.peak[verb] = max(l.peak[verb], highWater(l.B))
}

func (l *life) live(n int) {
	f := newFleet(l.B)
	f.Say = func(string, ...any) {}
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("node-%06d", i), Doc: func() ([]byte, error) { return numbered(i) }}
	}
	trust := f.Policy
	f.Trust = &trust
	verb := func(name string, act func() error) {
		f.Now = f.Now.Add(time.Minute)
		l.spend(name, act)
	}
	publish := func(nodes []Node, want int) func() error {
		return func() error {
			r, err := f.Publish(l.Context(), f.Policy, nodes, Options{})
			if err == nil && len(r.Published) != want {
				err = fmt.Errorf("%d nodes are published, want %d", len(r.Published), want)
			}
			return err
		}
	}
	order := func(h hold.Order, do func(hold.Order) error) func() error {
		h.By = By{Author: "eve", Reason: "why"}
		return func() error { return do(h) }
	}
	verb("publish", publish(nodes, n))
	large := n >= 1_000_000
	if !large {
		l.spend("copy", func() error { return os.CopyFS(l.TempDir(), os.DirFS(f.Registry.Ref().Layout)) })
		l.spend("sign", func() error { return signAll(f, nodes) })
		verb("publish-again", publish(nodes, 0))
	}
	other := slices.Clone(nodes)
	other[0].Doc = func() ([]byte, error) { return withValue(0, n) }
	verb("publish-one", publish(other, 1))
	verb("hold-one", order(hold.Order{Nodes: []string{nodes[1].Name}}, func(h hold.Order) error { _, err := hold.Freeze(l.Context(), f.Publisher, h); return err }))
	if large {
		return
	}
	for i := range nodes {
		other[i].Doc = func() ([]byte, error) { return withValue(i, n+1) }
	}
	verb("publish-other", publish(other, n-1)) // one is frozen
	verb("rollback", order(hold.Order{All: true}, func(h hold.Order) error { _, err := hold.Rollback(l.Context(), f.Publisher, h, "0-1"); return err }))
	verb("refresh", func() error { _, err := f.Refresh(l.Context(), Lists{}); return err })
	verb("verify", func() error {
		r, err := verify.Fleet(l.Context(), &f.Reader, f.Policy, nil, false)
		if err == nil && !r.OK() {
			err = fmt.Errorf("%+v", r.Findings)
		}
		return err
	})
	verb("prune", func() error {
		_, err := prune.Run(l.Context(), &f.Reader, f.Alone, prune.Keep{Versions: 2, Generations: 2}, false)
		return err
	})
}

// signAll makes each document and signs it, and nothing more.
func signAll(f *fleet, nodes []Node) error {
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			return err
		}
		if _, err := sign.SignOverlay(f.Operator, oci.Digest(doc), sign.Predicate{Fleet: "metal-a", Node: n.Name, Epoch: 1, Generation: 1, IssuedAt: f.Now, Expires: f.Now.Add(time.Hour)}); err != nil {
			return err
		}
	}
	return nil
}

// highWater is this process's memory at its peak, in MiB.
func highWater(b *testing.B) int {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("VmHWM:"))
	var kib int
	if _, err := fmt.Sscan(string(text), &kib); err != nil {
		b.Fatal(err)
	}
	return kib >> 10
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
