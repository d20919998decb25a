// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// fresh returns all nodes as they are judged from nothing.
func (r *rig) fresh() []view.Judged {
	r.hub.mu.RLock()
	defer r.hub.mu.RUnlock()
	var nodes []*view.Node
	for _, n := range r.hub.nodes {
		nodes = append(nodes, r.hub.viewNode(n))
	}
	return view.NewKept(nodes, r.hub.Now()).All(r.hub.Now())
}

// asKept fails where the list that the hub keeps is not as one that is made from nothing.
func (r *rig) asKept(what string) {
	r.Helper()
	now, kept, fresh := r.hub.Now(), r.hub.Nodes(), r.fresh()
	if a, b := view.Summarise(kept), view.Summarise(fresh); !reflect.DeepEqual(a, b) {
		r.Fatalf("behind %s: kept %+v\nfrom nothing %+v", what, a, b)
	}
	for _, n := range kept {
		is, why := n.Is()
		if c, because := n.Condition(now); c != is || because != why {
			r.Fatalf("behind %s: %s is kept as %s, %s; it is %s, %s", what, n.Name, is, why, c, because)
		}
	}
	for _, order := range view.Orders {
		for _, q := range []view.Query{{Sort: order}, {Sort: "-" + order, Condition: view.TroubleWord}, {Sort: order, Differs: true},
			{Sort: order, Health: "degraded"}, {Sort: order, Text: "n1"}, {Sort: order, Layer: numbered(0)}, {Sort: order, Sync: "refused"}} {
			a, all := view.Select(kept, q, 1, 3, now)
			b, of := view.Select(fresh, q, 1, 3, now)
			if all != of || !reflect.DeepEqual(a, b) {
				r.Fatalf("behind %s: %+v is kept as %d: %+v\nfrom nothing %d: %+v", what, q, all, a, of, b)
			}
			sorted := slices.Clone(a)
			if order.Sort(sorted); q.Sort == order && !reflect.DeepEqual(sorted, a) {
				r.Fatalf("behind %s: %s is not in its order: %+v", what, order, a)
			}
		}
	}
}

// TestTheListIsKept: whatever happens to a fleet, what the hub keeps of each node is what it would find out
// of all of them now.
func TestTheListIsKept(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t, "n1", "n2", "n10")
			r.hears = seed%2 == 0
			r.clock = r.clock.Truncate(time.Second) // so that edges are met
			r.restart()
			seqs, boots := map[string]uint64{}, map[string]int{}
			events := map[string]func(node string){
				"a report": func(node string) {
					key := fmt.Sprint(node, boots[node])
					seqs[key]++
					err := r.report(key, node, seqs[key], func(one *spec.Report) {
						one.Time = r.hub.Now()
						one.Interval = []int64{60, 300, 3600}[random.IntN(3)]
						one.Generation, one.Overlay = 1+random.Uint64N(2), numbered(1+random.Uint64N(2))
						one.Layer, one.LayerVersion = numbered(random.Uint64N(2)), "v"
						one.Axes.Health.State = []string{"ok", "degraded", "broken"}[random.IntN(3)]
						one.Axes.Sync.State = []string{"current", "behind", "refused:floor"}[random.IntN(3)]
						one.BootID = fmt.Sprint("b", boots[node])
					})
					if err != nil {
						t.Logf("%s: %v", node, err)
					}
				},
				"another machine": func(node string) { boots[node]++ },
				"time": func(string) {
					r.later([]time.Duration{time.Second, time.Minute, 4 * time.Minute, 16 * time.Minute, 3 * time.Hour, 8 * 24 * time.Hour}[random.IntN(6)])
				},
				"time back": func(string) { r.later(-time.Duration(random.IntN(20)) * time.Minute) },
				"a hint": func(node string) {
					if err := r.hub.Hint(spec.Hint{Fleet: "f", Node: node, Why: "no overlay"}, "127.0.0.1"); err != nil {
						t.Logf("%s: %v", node, err)
					}
				},
				"an index": func(string) {
					var names []string
					for _, name := range []string{"n1", "n2", "n3", "n10", "n11"} {
						if random.IntN(4) > 0 {
							names = append(names, name)
						}
					}
					r.publish(fmt.Sprint("r", random.Uint64()), 1+random.Uint64N(2), names...)
					for name, row := range r.what.Rows {
						if random.IntN(3) == 0 {
							row.Holds = []spec.Hold{{Kind: []string{spec.HoldFreeze, spec.HoldPause}[random.IntN(2)], Reason: "a look", Until: r.hub.Now().Unix() + 60}}
							r.what.Rows[name] = row
						}
					}
					r.hub.readIndex(t.Context())
				},
				"a silence of the service": func(string) {
					r.hub.mu.Lock()
					defer r.hub.mu.Unlock()
					r.hub.startListening()
				},
				"nodes are forgotten": func(string) { r.must(r.hub.forgetRetired(t.Context())) },
				"an accepted key": func(node string) {
					if err := r.hub.Accept(t.Context(), node, sign.VerifierOf(r.key(fmt.Sprint(node, boots[node]))).ID(), "me"); err != nil {
						t.Logf("%s: %v", node, err)
					}
				},
			}
			often := slices.Sorted(func(yield func(string) bool) {
				for what := range events {
					yield(what)
				}
			})
			for range 300 {
				what := often[random.IntN(len(often))]
				if random.IntN(2) == 0 {
					what = "a report"
				}
				node := []string{"n1", "n2", "n3", "n10", "n11"}[random.IntN(5)]
				events[what](node)
				if random.IntN(3) > 0 {
					r.asKept(what + " of " + node)
				}
			}
		})
	}
}

// TestAListThatWasGivenStays: who has a list of nodes has it as it was.
func TestAListThatWasGivenStays(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.must(r.report("k1", "n1", 1, nil))
	was := r.hub.Nodes()
	r.must(r.report("k1", "n1", 2, func(one *spec.Report) { one.Axes.Health.State = "broken" }))
	r.later(24 * time.Hour)
	if c, _ := was[0].Is(); c != view.Fine {
		t.Errorf("it became %s", c)
	}
	if c, _ := r.hub.Nodes()[0].Is(); c != view.Broken {
		t.Errorf("the next one has %s", c)
	}
}

// TestAnIndexReplacesWhatChanged: a node whose row is as it was is neither replaced nor judged again.
func TestAnIndexReplacesWhatChanged(t *testing.T) {
	r := newRig(t, "n1", "n2", "n3")
	if r.hub.kept == nil {
		t.Error("the first page has to judge all")
	}
	was := r.hub.Nodes()
	r.publish("2", 1, "n1", "n2", "n3")
	r.what.Rows["n2"] = spec.Published{Overlay: numbered(7), Layer: numbered(0), Generation: 7}
	r.hub.readIndex(t.Context())
	for i, n := range r.hub.Nodes() {
		if same := n.Node == was[i].Node; same != (n.Name != "n2") {
			t.Errorf("%s is the same: %v", n.Name, same)
		}
	}
}
