// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/test/powercut"
	"github.com/caisson-os/caisson/test/require"
)

// crash is something that a node is at when its power goes.
type crash struct {
	name  string
	ready func(*victim) // what was before, and what is published
	acts  string        // what is cut
	first bool          // nothing was good before
	may   []uint64      // generations that may run without a network afterwards
	ends  []uint64      // and one of those with one
}

// crashes are fetch, stage, activate, collect and roll back, each with its journal.
var crashes = []crash{
	{"the first boot", func(v *victim) { v.publish(1, "a", 0) }, "boot", true, []uint64{1}, []uint64{1}},
	{"a newer overlay", func(v *victim) { v.runs(1, "a"); v.publish(2, "a", 0) }, "sync", false, []uint64{1, 2}, []uint64{2}},
	{"a newer layer is staged", func(v *victim) { v.runs(1, "a"); v.publish(2, "b", 0) }, "sync,stage", false, []uint64{1}, []uint64{2}},
	{"a staged layer is booted", func(v *victim) { v.runs(1, "a"); v.publish(2, "b", 0); v.do("sync,stage") }, "boot", false, []uint64{1, 2}, []uint64{2}},
	{"a layer is fetched, and the first of three goes", func(v *victim) { v.runs(1, "a"); v.runs(2, "b"); v.publish(3, "c", 0) }, "boot", false, []uint64{2, 3}, []uint64{3}},
	{"an overlay fails its checks", func(v *victim) { v.runs(1, "a"); v.publish(2, "a", never) }, "sync,judge", false, []uint64{1}, []uint64{1}},
	{"a layer fails its checks", func(v *victim) { v.runs(1, "a"); v.publish(2, "b", never) }, "boot,judge,boot", false, []uint64{1}, []uint64{1}},
	{"an overlay passes its checks", func(v *victim) { v.runs(1, "a"); v.publish(2, "a", always) }, "sync,judge", false, []uint64{1, 2}, []uint64{2}},
	{"a layer passes its checks", func(v *victim) { v.runs(1, "a"); v.publish(2, "b", always) }, "boot,judge", false, []uint64{1, 2}, []uint64{2}},
	{"a roll back by hand", func(v *victim) { v.runs(1, "a"); v.runs(2, "a") }, "rollback", false, []uint64{1, 2}, []uint64{1, 2}},
	{"a roll back by hand to another layer", func(v *victim) { v.runs(1, "a"); v.runs(2, "b") }, "rollback,boot", false, []uint64{1, 2}, []uint64{1, 2}},
	{"an end to that", func(v *victim) { v.runs(1, "a"); v.runs(2, "a"); v.do("rollback") }, "forward", false, []uint64{1, 2}, []uint64{1, 2}},
	{"a pause, and its end", func(v *victim) { v.runs(1, "a") }, "pause,resume", false, []uint64{1}, []uint64{1}},
}

// matrix is how much of what may happen is looked at.
type matrix struct {
	third int // every so many results of cuts
	again int // and of every so many the boot after it, which is cut, too; 0: of none
	least int // points, or it tests too little
}

func (m matrix) run(t *testing.T) {
	if words, is := recordedVictim(t); is {
		(&victim{t: t, root: words[1]}).do(words[0])
		return
	}
	points, calls := 0, 0
	for number, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			v := newVictim(t)
			c.ready(v)
			r := powercut.Record(t, v.root+paths.State, topOf(t), c.acts, v.root)
			cuts := r.Cuts(1)
			once := m.look(t, v, c, cuts, number)
			calls += r.Calls()
			twice := 0
			for n := number % max(m.again, 1); m.again > 0 && n < len(cuts) && !t.Failed(); n += m.again {
				left, err := v.after(cuts[n])
				if err != nil {
					t.Fatal(err)
				}
				c.may = append(slices.Clone(c.may), c.ends...)
				r := powercut.Record(t, left.root+paths.State, topOf(t), "boot,sync,judge", left.root)
				twice += m.look(t, left, c, r.Cuts(uint64(n)), 0)
				calls += r.Calls()
			}
			points += once + twice
			t.Logf("%d calls, %d results of cuts: %d looked at, and %d of cuts in the boot after one", r.Calls(), len(cuts), once, twice)
		})
	}
	t.Logf("%d calls, %d points", calls, points)
	if points < m.least && !t.Failed() {
		t.Errorf("%d points; want %d: it tests too little", points, m.least)
	}
}

// look boots what cuts have left, and returns of how many.
func (m matrix) look(t *testing.T, v *victim, c crash, cuts []powercut.Cut, first int) (looked int) {
	t.Helper()
	for n := first % m.third; n < len(cuts); n += m.third {
		looked++
		if err := v.survives(c, cuts[n]); err != nil {
			t.Errorf("%s: %v\n%s", cuts[n], err, v.all())
			return looked
		}
	}
	return looked
}

// Wherever the power goes, the next boot runs what was good or what is new, and so does the
// one after, if it goes again.
func TestAPowerCut(t *testing.T) {
	require.Slow(t)
	matrix{third: 5, least: 100}.run(t)
}

func TestLongEveryPowerCut(t *testing.T) {
	if !powercut.IsRecorded() {
		require.Long(t)
	}
	matrix{third: 1, again: 7, least: 2000}.run(t)
}
