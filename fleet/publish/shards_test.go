// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/index"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// manyNodes is a fleet of n in a registry server, of which n0 alone has an overlay; the rows of
// the others are as large as they get. written counts the bytes of all requests' bodies, read the
// shards that were fetched.
func manyNodes(t testing.TB, n int) (f *fleet, written, read *atomic.Int64) {
	t.Helper()
	f, written, read = newFleet(t), new(atomic.Int64), new(atomic.Int64)
	shards := map[string]bool{} // paths of their manifests
	f.Registry = f.at(t, through(t, registrytest.WithReferrers(t), func(q *http.Request) {
		q.Body = &counted{q.Body, written}
		if q.Method == http.MethodGet && shards[q.URL.Path] {
			read.Add(1)
		}
	})).Registry
	f.Memory, f.NewFleet, f.Now = nil, true, time.Now().UTC().Truncate(time.Second)
	f.MustPublish(f.Nodes("", "10"), Options{})
	v, err := f.Open(t.Context(), f.Policy, published.Purpose{})
	must(t, err)
	r := f.Run(v)
	x := r.Next()
	hash := func(i int, what string) string { return digest.Of(fmt.Append(nil, i, what)) }
	for i := range n {
		x.Set(fmt.Sprintf("node-%06d.rack-%03d.example.org", i, i/40), spec.Published{
			Manifest: hash(i, "m"), Overlay: hash(i, "o"), Layer: hash(i%9, "l"), Generation: 1, Expires: f.Now.Unix() + 1e6, Size: 4000,
			Match:  spec.Match{MACs: []string{"52:54:00:12:34:56", "52:54:00:12:34:57"}},
			Before: &spec.Content{Overlay: hash(i, "b"), Size: 4000, Layer: hash(i%7, "l"), Generation: 1},
		})
	}
	f.Now = f.Now.Add(time.Second)
	_, err = PutIndex(r, t.Context(), f.Policy.Lifetime, x, "gen-0-1", "index")
	must(t, err)
	if got, want := len(x.Root.Shards), index.Count(n+1); got != want {
		t.Fatalf("%d shards, want %d", got, want)
	}
	for _, s := range x.Root.Shards {
		shards["/v2/metal-a/node/manifests/"+s.Manifest] = true
	}
	return f, written, read
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// n0 is an order about the node of that name.
var n0 = hold.Order{Nodes: []string{"n0"}}

// TestHoldingOneOfManyWritesLittle: at most 1 MB for one of 100,000 nodes.
func TestHoldingOneOfManyWritesLittle(t *testing.T) {
	require.Slow(t)
	f, written, _ := manyNodes(t, 100_000)
	for what, do := range map[string]func() (*Result, error){
		"freeze":  func() (*Result, error) { return hold.Freeze(t.Context(), f.Publisher, n0) },
		"pause":   func() (*Result, error) { return hold.Pause(t.Context(), f.Publisher, n0) },
		"forward": func() (*Result, error) { return hold.Forward(t.Context(), f.Publisher, n0) },
	} {
		f.Now = f.Now.Add(time.Second)
		written.Store(0)
		began := time.Now()
		r, err := do()
		if err != nil || r.Unchanged < 100_000 {
			t.Fatalf("%s: %+v, %v", what, r, err)
		}
		if n := written.Load(); n > 1_000_000 {
			t.Errorf("%s wrote %d bytes", what, n)
		} else {
			t.Logf("%s wrote %d bytes in %s", what, n, time.Since(began))
		}
	}
}

// TestWhatIsKeptIsNotReadAgain: who keeps the shards of a look reads at the next one those that have
// changed, and finds the rows that who keeps nothing finds.
func TestWhatIsKeptIsNotReadAgain(t *testing.T) {
	const nodes = 2000
	f, _, read := manyNodes(t, nodes)
	plain, kept := *f.Publisher, *f.Publisher
	kept.Kept = &published.Shards{}
	look := func(p Publisher, want int) (rows index.Rows) {
		t.Helper()
		read.Store(0)
		fleet, err := p.Read(t.Context(), f.Policy)
		must(t, err)
		rows, err = fleet.Nodes(t.Context())
		must(t, err)
		if got := int(read.Load()); got != want {
			t.Errorf("%d shards of the first index were read, want %d", got, want)
		}
		return rows
	}
	shards := index.Count(nodes + 1)
	look(kept, shards)
	if look(kept, 0); !reflect.DeepEqual(look(kept, 0), look(plain, shards)) {
		t.Error("the rows that are kept are others")
	}
	_, err := hold.Freeze(t.Context(), f.Publisher, n0)
	must(t, err)
	rows := look(kept, 0) // the new shard is not of the first index
	if !reflect.DeepEqual(rows, look(plain, shards-1)) || len(rows["n0"].Holds) != 1 {
		t.Errorf("behind a hold: %+v", rows["n0"])
	}
}

// BenchmarkHold freezes one of many nodes in a registry server on this machine.
func BenchmarkHold(b *testing.B) {
	for _, nodes := range sizes(b) {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			f, written, _ := manyNodes(b, nodes)
			written.Store(0)
			for b.Loop() {
				f.Now = f.Now.Add(time.Second)
				if _, err := hold.Freeze(b.Context(), f.Publisher, n0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(written.Load())/float64(b.N), "B/hold")
		})
	}
}

// sizes are how many nodes a benchmark has, one after another: CAISSON_NODES says more, as 1000000.
func sizes(b *testing.B) []int {
	b.Helper()
	list := []int{10_000, 100_000}
	for _, word := range strings.Fields(os.Getenv("CAISSON_NODES")) {
		n, err := strconv.Atoi(word)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// TestAGenerationIsKept: what an earlier generation needs is there as long as its tag,
// though the nodes have other overlays.
func TestAGenerationIsKept(t *testing.T) {
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		p := f.at(t, backend+"/metal-a")
		for _, value := range []string{"10", "20", "30"} {
			_, err := p.Publish(t.Context(), f.Policy, f.Nodes("", value), Options{})
			must(t, err)
		}
		fleet, err := p.Read(t.Context(), f.Policy)
		must(t, err)
		list, err := fleet.Generations(t.Context())
		if err != nil || fmt.Sprint(list) != "[0-3 0-2 0-1]" {
			t.Fatalf("generations %v, %v", list, err)
		}
		for i, want := range []string{"30", "20", "10"} {
			past, err := fleet.Past(t.Context(), list[i])
			must(t, err)
			row, ok, err := past.Row(t.Context(), "n0")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			o, err := fleet.Content(t.Context(), "n0", spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation})
			if err != nil || o.Items.Sysctl[0].Value != want {
				t.Errorf("generation %s: %+v, %v; want %s", list[i], o, err, want)
			}
			// A shard's manifest names the overlay, so that no garbage collection takes it.
			raw, _, err := p.Registry.Manifest(t.Context(), oci.RepoNode, "keep-"+strings.Replace(past.Root.Shards[0].Manifest, ":", "-", 1))
			if err != nil || !strings.Contains(string(raw), row.Overlay) {
				t.Errorf("generation %s: the tag of its shard leads to %s, %v", list[i], raw, err)
			}
		}
	})
}

// TestALostOverlayStopsNothing: a registry that lost what nobody runs any more takes
// the next publish all the same.
func TestALostOverlayStopsNothing(t *testing.T) {
	require.Slow(t)
	f := newFleet(t)
	p := f.at(t, registrytest.Distribution(t)+"/metal-a")
	_, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "10"), Options{})
	must(t, err)
	v, err := p.Open(t.Context(), f.Policy, published.Purpose{})
	must(t, err)
	row, _, err := v.Row(t.Context(), "n0")
	must(t, err)
	row.Before = &spec.Content{Overlay: digest.Of([]byte("lost")), Size: 4}
	if _, err := PutShard(p, t.Context(), spec.FleetShard{APIVersion: spec.APIVersion, Kind: spec.KindFleetShard, Fleet: "metal-a", Nodes: index.Rows{"n0": row}}); err != nil {
		t.Error(err)
	}
}
