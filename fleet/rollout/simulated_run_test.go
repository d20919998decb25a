// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

const (
	step        = 3 * time.Minute // of the clock
	lastTrouble = 3 * time.Hour   // then all that comes over nodes has begun
	patience    = 12 * time.Hour  // within it both rollouts end
)

// world is one run: a registry, a service, nodes, and two who drive a rollout each, by one clock
// that stands still while somebody is at work.
type world struct {
	testing.TB
	*ground
	seed     uint64
	spared   bool         // nothing comes over its nodes, but for operations with slots
	clock    atomic.Int64 // since begins
	registry *served
	service  *service
	machines []*machine
	observer *observer
	drivers  []*driving
	looks    *publish.Publisher
	proofs   int
	restarts []restart
	log      []string

	slotting sync.Mutex
	standing sync.RWMutex // held while the service is stopped or started
	cuts     atomic.Int64 // that came over it
	dark     atomic.Bool  // the registry was away, which keeps nodes from what they are given
	requests atomic.Int64 // of those who drive
	gate     sync.Mutex
	dead     map[string]bool // those who drive no more
	hooks    map[int64]func(who string) fate
}

// fate is what becomes of a request.
type fate int

const (
	goes       fate = iota
	refused         // it never arrives
	unanswered      // it arrives, and its answer does not
)

// restart is something that comes back.
type restart struct {
	at time.Time
	do func()
}

func (w *world) now() time.Time { return begins.Add(time.Duration(w.clock.Load())) }

// open makes what a run is made of.
func (w *world) open() {
	w.dead, w.hooks = map[string]bool{}, map[int64]func(string) fate{}
	w.registry = newRegistry(w)
	w.service = &service{w: w, file: w.database(), stop: func() {}}
	for _, name := range w.names {
		key := w.keys[name]
		m := &machine{name: name, key: key, id: sign.VerifierOf(key).ID(), overlay: w.had[name], took: begins, well: begins}
		if w.had != nil {
			m.seq, m.sent = 1, begins
		}
		w.machines = append(w.machines, m)
	}
}

func (w *world) close() {
	w.service.stop()
	w.registry.close()
}

// pass counts a request of somebody who drives, and says what becomes of it.
func (w *world) pass(who string) fate {
	if !strings.HasPrefix(who, "driver") {
		return goes
	}
	w.gate.Lock()
	if w.dead[who] {
		w.gate.Unlock()
		return refused
	}
	n := w.requests.Add(1)
	hook := w.hooks[n]
	delete(w.hooks, n)
	w.gate.Unlock()
	if hook == nil {
		return goes
	}
	return hook(who)
}

func (w *world) isDead(who string) bool {
	w.gate.Lock()
	defer w.gate.Unlock()
	return w.dead[who]
}

// bury withdraws the reservations that nobody renews, as their publishers were killed or could not
// withdraw them: a publisher does so after minutes, in which the simulation's clock stands still.
func (w *world) bury(ctx context.Context) {
	if w.cuts.Load() == 0 {
		return
	}
	r := &reserve.Reserver{Registry: w.observing().Registry, Now: w.now(), Say: func(string, ...any) {}, Pace: reserve.Pace{Beat: time.Minute, Look: 5 * time.Millisecond, Dead: 20 * time.Millisecond}}
	for ctx.Err() == nil {
		standing, err := r.Standing(ctx)
		if err != nil {
			return // the run is over, and its registry is closed
		}
		dead := slices.DeleteFunc(standing, w.isRenewed)
		if len(dead) == 0 {
			return
		}
		if err := r.Await(ctx, dead); err == nil || !errors.Is(err, reserve.ErrTaken) {
			return
		} // one has ended meanwhile, or a busy machine had no time for its looks
	}
}

// isRenewed says whether a driver that lives holds a reservation.
func (w *world) isRenewed(s reserve.Found) bool {
	return slices.ContainsFunc(w.drivers, func(d *driving) bool {
		is := d.at.Load()
		return is != nil && is.who == s.By && d.works.Load() && !w.isDead(s.By)
	})
}

func (w *world) say(format string, args ...any) {
	w.gate.Lock()
	defer w.gate.Unlock()
	w.log = append(w.log, fmt.Sprintf("%s %d: ", w.now().Sub(begins), w.requests.Load())+fmt.Sprintf(format, args...))
}

// run plays a run to the end of both rollouts.
func (g *ground) run(t testing.TB, seed uint64, plan func(*world)) *world {
	t.Helper()
	w := &world{TB: t, ground: g, seed: seed}
	w.observer = newObserver(w)
	w.open()
	defer w.close()
	r := rand.New(rand.NewPCG(seed, 1))
	w.fates(r)
	for _, name := range sides {
		d := &driving{w: w, name: name}
		if r.IntN(8) == 0 {
			var err error
			d.keys, err = report.OpenReporters(filepath.Join(t.TempDir(), "reporters"), true)
			must(t, err)
		}
		if r.IntN(4) == 0 {
			d.undoAt = time.Duration(r.Int64N(int64(lastTrouble)))
		}
		w.drivers = append(w.drivers, d)
	}
	w.between(r)
	if plan != nil {
		plan(w)
	}
	w.service.start()
	for w.now().Sub(begins) < patience && (w.drivers[0].ended == "" || w.drivers[1].ended == "") && !t.Failed() {
		for i, at := range w.restarts {
			if at.do != nil && !w.now().Before(at.at) {
				w.restarts[i].do = nil
				at.do()
			}
		}
		for _, d := range w.drivers {
			for n := 0; d.work(t.Context()) && n < 100; n++ {
			}
		}
		for _, d := range w.drivers {
			d.finish()
		}
		w.tick(step)
	}
	w.judge()
	if t.Failed() {
		for _, line := range w.log {
			t.Log(line)
		}
	}
	return w
}

// between has nodes ask for slots, and the other rollout go on, in the middle of steps all over a run.
func (w *world) between(r *rand.Rand) {
	requests := int64(requestsOfANode * w.nodes)
	for range 12 + w.nodes/20 {
		m := w.machines[r.IntN(len(w.machines))]
		w.hooks[1+r.Int64N(requests)] = func(string) fate {
			if m.disturbed.to == 0 {
				m.disturbed = span{w.now().Sub(begins), w.now().Sub(begins) + 10*time.Minute}
			}
			m.slot(w)
			return goes
		}
	}
	for range 6 + w.nodes/40 {
		w.hooks[1+r.Int64N(requests)] = func(who string) fate {
			for _, d := range w.drivers {
				if !strings.HasPrefix(who, "driver-"+d.name+"-") {
					d.work(w.Context())
				}
			}
			return goes
		}
	}
}

// judge looks at how a run ended.
func (w *world) judge() {
	w.Helper()
	for _, what := range w.observer.wrong {
		w.Errorf("seed %d: %s", w.seed, what)
	}
	rows := w.read().Rollouts()
	for i, d := range w.drivers {
		if d.ended == "" {
			w.Errorf("seed %d: rollout %s does not end: %s", w.seed, d.name, rows[d.name].Phase)
		}
		if rows[d.name].Phase == spec.RolloutHalted && rows[d.name].Reason == "" {
			w.Errorf("seed %d: rollout %s halted, and nobody knows why", w.seed, d.name)
		}
		w.judgeHalt(d.name, rows[d.name])
		if w.spared && !d.undone && !w.dark.Load() && rows[d.name].Phase != spec.RolloutDone {
			w.Errorf("seed %d: nothing comes over rollout %s, and it is %s", w.seed, d.name, d.ended)
		}
		leftOut := map[string]string{}
		for _, wave := range rows[d.name].Waves {
			for name, why := range wave.LeftOut {
				leftOut[name] = why
			}
			for name, why := range wave.Stayed {
				leftOut[name] = why
			}
		}
		for j := i; j < w.nodes; j += len(sides) {
			name := w.names[j]
			had := w.registry.had[name]
			if len(had) > 3 || len(had) == 3 && had[2] != had[0] {
				w.Errorf("seed %d: node %s had %d overlays, one after another", w.seed, name, len(had))
			}
			moved := had[len(had)-1] != had[0]
			switch phase := rows[d.name].Phase; {
			case leftOut[name] != "":
			case phase == spec.RolloutDone && !moved, phase == spec.RolloutUndone && moved, phase == spec.RolloutHalted && moved:
				w.Errorf("seed %d: rollout %s is %s, and node %s has moved: %v", w.seed, d.name, phase, name, moved)
			}
		}
	}
}

// judgeHalt wants failures enough for a halt, and each of a node that something came over.
func (w *world) judgeHalt(name string, row spec.Rollout) {
	w.Helper()
	most := 0
	for _, wave := range row.Waves {
		most = max(most, len(wave.Failed))
		for _, m := range w.machines {
			why := wave.Failed[m.name]
			if why != "" && !w.dark.Load() && m.mute == (span{}) && m.cutOff == (span{}) && m.sick == (span{}) && m.badFor == 0 {
				w.Errorf("seed %d: nothing came over node %s of rollout %s, which failed: %s", w.seed, m.name, name, why)
			}
		}
	}
	if row.Phase == spec.RolloutHalted && most < w.rule.Count {
		w.Errorf("seed %d: rollout %s halted by %d failures, of %d: %s", w.seed, name, most, w.rule.Count, row.Reason)
	}
}
