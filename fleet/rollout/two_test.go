// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

// Two that run one rollout do each step once.
func TestTwoRuns(t *testing.T) {
	f := newFleet(t, layout(t), 12, threeWaves)
	_, err := f.start("2")
	must(t, err)
	done := false
	for range 400 {
		var both sync.WaitGroup
		var errs [2]error
		for i := range errs {
			d := f.driver()
			both.Go(func() { _, _, errs[i] = d.Step(t.Context()) })
		}
		both.Wait()
		for _, err := range errs {
			done = done || errors.Is(err, ErrEnded)
			if final(err) && !errors.Is(err, ErrEnded) {
				t.Fatal(err)
			}
		}
		f.tick(time.Minute)
		if done {
			break
		}
	}
	if r := f.row(); !done || len(r.Waves) != 3 {
		t.Fatalf("ended: %v, %+v", done, r)
	}
	f.want(map[string]int{"2": 12})
	for _, n := range f.nodes {
		if n.taken != 2 {
			t.Errorf("node %s took something %d times", n.name, n.taken)
		}
	}
}

// Ten thousand nodes, some of them sick, silent or gone: a rollout that bears so many
// ends; one that does not halts where it should and everybody is back.
func TestLongTenThousand(t *testing.T) {
	require.Long(t)
	big(t, 10_000)
}

func TestThreeHundred(t *testing.T) { big(t, 300) }

func big(t *testing.T, n int) {
	require.Slow(t)
	f := newFleet(t, layout(t), n, "{waves: [{percent: 1}, {percent: 10}, {each: rack}], soak: 5m, deadline: 30m, silence: 15m, halt: {percent: 10}, undo: all}")
	random := rand.New(rand.NewPCG(1, uint64(n)))
	gone := 0
	for i, name := range f.names {
		switch node := f.nodes[name]; {
		case i < n/100: // the first wave is well
		case random.IntN(100) == 0:
			node.sick = "2"
		case random.IntN(100) == 0:
			node.silent = func(v string) bool { return v == "2" }
		case random.IntN(100) == 0:
			node.dumb = true
			gone++
		}
	}
	f.tick(20 * time.Minute)
	_, err := f.start("2")
	must(t, err)
	f.leaves(fmt.Sprintf("%d of %d nodes left out: ", gone, n))
	f.want(map[string]int{"1": gone, "2": n - gone})
	// Now what everybody gets is bad for every third.
	for i, name := range f.names {
		node := f.nodes[name]
		if node.dumb = i%97 == 96 && i > n/100; i%3 == 1 {
			node.sick = "3"
		}
	}
	f.tick(20 * time.Minute)
	before := f.values()
	_, err = f.start("3")
	must(t, err)
	if err := f.run(); !errors.Is(err, ErrHalted) {
		t.Fatal(err)
	}
	f.want(before)
	if r := f.row(); len(r.Waves) != 1 || r.Waves[0].Back == 0 {
		t.Errorf("it halted after %d waves", len(r.Waves))
	}
	for _, node := range f.nodes {
		if node.taken > 4 {
			t.Errorf("node %s took something %d times", node.name, node.taken)
		}
	}
}
