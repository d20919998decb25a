// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// TestWhatIsSaidHoldsUntil: what is said of a node stays as it is until the time that it holds, whatever
// of the node ends with time.
func TestWhatIsSaidHoldsUntil(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Unix(1_790_000_000, 0)
	some := func() time.Time { return begin.Add(time.Duration(random.IntN(8*60)-4*60) * time.Minute) }
	changes := 0
	for range 200 {
		n := &Node{Name: "n", Received: some(), Grade: spec.KeyBoot, Published: &spec.Published{Overlay: "a"},
			Report: &Brief{Interval: time.Duration(random.IntN(60)) * time.Minute, Overlay: "a", BootID: "b", TPM: "k",
				Axes: spec.Axes{Health: spec.Axis{State: string(spec.HealthOK)}}},
			Quote: &Quote{At: some(), State: Attested, Boot: "b", Overlay: "a"}}
		switch random.IntN(5) {
		case 0:
			n.Listens = n.Received.Add(time.Minute)
		case 1:
			n.Offered = &Offer{At: some(), Since: some(), Interval: time.Duration(random.IntN(99)) * time.Minute, Why: "another"}
		case 2:
			n.Hint = &Hint{At: some()}
		case 3:
			n.Published.Holds = []spec.Hold{{Kind: spec.HoldFreeze, Until: some().Unix()}, {Kind: spec.HoldPause, Until: some().Unix()}}
		}
		kept := Judge(n, begin.Add(-1))
		for now := begin; now.Before(begin.Add(4 * time.Hour)); now = now.Add(time.Minute) {
			for _, now := range []time.Time{now.Add(-1), now, now.Add(1)} {
				is := Judge(n, now)
				if is.said != kept.said {
					if changes++; kept.until.IsZero() || now.Before(kept.until) {
						t.Fatalf("%+v is %+v at %s, and was to be %+v until %s", n, is.said.Value(), now, kept.said.Value(), kept.until)
					}
				}
				if !kept.until.IsZero() && !now.Before(kept.until) {
					kept = is
				}
			}
		}
	}
	if changes < 200 {
		t.Errorf("%d changes were met", changes)
	}
}

// TestAPageOfAList: a page has of the whole list in its order what is at its place.
func TestAPageOfAList(t *testing.T) {
	random, now := rand.New(rand.NewPCG(3, 4)), time.Unix(1_790_000_000, 0)
	var nodes []*Node
	for i := range 500 {
		nodes = append(nodes, &Node{Name: fmt.Sprint("n", i), Received: now.Add(time.Duration(random.IntN(60)) * time.Second),
			Published: &spec.Published{}, Report: &Brief{Generation: random.Uint64N(9), Version: fmt.Sprint(random.IntN(12)),
				Axes: spec.Axes{Health: spec.Axis{State: []string{"ok", "degraded", "broken"}[random.IntN(3)]}}}})
	}
	all := NewKept(nodes, now).All(now)
	for _, order := range Orders {
		for _, q := range []Query{{Sort: order}, {Sort: "-" + order}, {Sort: order, Health: "broken"}} {
			whole, n := Select(all, q, 0, len(all), now)
			sorted := slices.Clone(whole)
			if q.Sort.Sort(sorted); len(whole) != n || !reflect.DeepEqual(sorted, whole) {
				t.Fatalf("%+v is not in its order", q)
			}
			for _, at := range [][2]int{{0, 0}, {0, 1}, {0, 7}, {5, 20}, {100, 100}, {450, 100}, {1000, 5}, {0, 500}} {
				page, of := Select(all, q, at[0], at[1], now)
				want := whole[min(at[0], n):min(at[0]+at[1], n)]
				if of != n || len(page) != len(want) || len(want) > 0 && !reflect.DeepEqual(page, want) {
					t.Fatalf("%+v, %d from %d on: %d of %d nodes", q, at[1], at[0], len(page), of)
				}
			}
		}
	}
}
