// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestSimulated: whatever is killed or away at some requests of two rollouts that share a budget,
// and whatever comes over nodes, nothing makes more of them unavailable than the budget allows, no
// node moves more than once forward and once back, and both rollouts end.
func TestSimulated(t *testing.T) {
	require.Slow(t)
	g := newGround(t, 40, 8, budgetOf(3, 12, 6))
	seed := drawnSeed(t)
	for i := range uint64(runs(t, 1)) {
		w := g.run(t, seed+i, func(w *world) {
			r := rand.New(rand.NewPCG(w.seed, 2))
			for range 1 + r.IntN(12) {
				w.cutAt(1+r.Int64N(900), r.IntN(len(cuts)), drawnAway(r))
			}
		})
		if w.tell(); t.Failed() {
			break
		}
	}
}

// The same of 200 nodes, cut at every request by each sort of cut: a run is cut at one of the first
// requests and then again and again, and the next run one request later. Between two cuts is more
// than who goes on needs. The registry goes away before it does what it is asked for, or behind that. One
// rollout goes through, and an operator undoes the other.
func TestLongSimulatedDriver(t *testing.T)   { require.Long(t); everyRequest(t, 0) }
func TestLongSimulatedRegistry(t *testing.T) { require.Long(t); everyRequest(t, 1) }
func TestLongSimulatedService(t *testing.T)  { require.Long(t); everyRequest(t, 2) }

func everyRequest(t *testing.T, how int) {
	const apart = 200
	g := newGround(t, 200, 20, budgetOf(6, 45, 25))
	g.ill = true
	seed := drawnSeed(t)
	drives := func(w *world) { w.drivers[0].undoAt, w.drivers[1].undoAt = 0, lastTrouble/4 }
	whole := g.run(t, seed, drives)
	whole.tell()
	var failed atomic.Bool
	var done atomic.Int64
	all := int64(runs(t, apart))
	t.Run("cut", func(t *testing.T) {
		for first := int64(1); first <= all; first++ {
			t.Run(fmt.Sprint(first), func(t *testing.T) {
				t.Parallel() // a run waits for one driver, most of the time
				if failed.Load() {
					return // one that failed is enough to look at
				}
				w := g.run(t, seed, func(w *world) {
					drives(w)
					r := rand.New(rand.NewPCG(w.seed, uint64(first)))
					for at := first; at < 2*whole.requests.Load(); at += apart {
						w.cutAt(at, how, drawnAway(r))
					}
				})
				if strings.HasPrefix(w.drivers[0].ended, spec.RolloutDone) {
					done.Add(1)
				}
				if w.tell(); t.Failed() {
					failed.Store(true)
					t.Errorf("cut at request %d and every %d from there on", first, apart)
				}
			})
		}
	})
	t.Logf("%d of %d runs end done", done.Load(), all)
	if ended := whole.drivers[0].ended; !t.Failed() && (!strings.HasPrefix(ended, spec.RolloutDone) || 4*done.Load() < all) {
		t.Errorf("rollout a, which nobody undoes, is %s without a cut, and done in %d of %d runs with them", ended, done.Load(), all)
	}
}

// The same of ten thousand nodes: runs are cut at drawn requests, two hundred of them in all, or as
// many as CAISSON_SIMULATED says. The service is believed: to verify each report at each look would
// take hours.
func TestLongSimulatedTenThousand(t *testing.T) {
	require.Long(t)
	const nodes, apart = 10_000, 3_000
	g := newGround(t, nodes, 40, budgetOf(4, nodes/20, 16))
	seed := drawnSeed(t)
	for done := int64(0); done < int64(runs(t, 200)) && !t.Failed(); seed++ {
		w := g.run(t, seed, func(w *world) {
			for _, d := range w.drivers {
				d.keys = nil
			}
			r := rand.New(rand.NewPCG(w.seed, 2))
			for at := r.Int64N(apart); at < 100*nodes; at += apart/2 + r.Int64N(apart) {
				w.cutAt(1+at, r.IntN(len(cuts)), time.Duration(r.IntN(3))*step)
			}
		})
		done += w.cuts.Load()
		w.tell()
	}
}

// requestsOfANode is how many requests drivers make in a run, for each of its nodes, at least.
const requestsOfANode = 18

// budgetOf is a rollout with a budget of each rack and of all nodes, which so many failures halt.
func budgetOf(rack, all, halt int) string {
	return fmt.Sprintf("{strategy: {maxUnavailable: %d, per: rack, overall: %d}, soak: 3m, deadline: 30m, silence: 10m, halt: {count: %d}, undo: all}", rack, all, halt)
}

// tell says how a run went.
func (w *world) tell() {
	w.Helper()
	w.Logf("CAISSON_SEED=%d: %d requests, %d cuts in %s of the clock; %s; %s", w.seed, w.requests.Load(), w.cuts.Load(), w.now().Sub(begins), w.drivers[0].ended, w.drivers[1].ended)
}

// drawnSeed draws what chance goes by, or takes CAISSON_SEED.
func drawnSeed(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("CAISSON_SEED")
	if s == "" {
		return rand.Uint64() >> 1
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	must(t, err)
	return seed
}

// runs is how many runs a test plays: so many, or as CAISSON_SIMULATED says.
func runs(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("CAISSON_SIMULATED"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		must(t, err)
	}
	return n
}
