// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// span is a time in which something is so, from the beginning of the simulation on.
type span struct{ from, to time.Duration }

func (s span) has(at time.Duration) bool { return s.from <= at && at < s.to }

// reportsEvery is how often a node reports that has nothing new to say.
const reportsEvery = 5 * time.Minute

// machine is a simulated node: what it runs, what it says, and what comes over it.
type machine struct {
	name string
	key  *ecdsa.PrivateKey
	id   string // of the key
	seq  uint64

	overlay string
	took    time.Time
	trouble bool
	well    time.Time // since when it is not in trouble
	judges  bool      // what it took has to pass its checks
	news    bool      // it has something to say
	sent    time.Time // its last report that was taken

	sick, mute, cutOff span          // in trouble, without a way to the service, and to the registry
	badFor             time.Duration // what a rollout brings does it no good for so long
	judgesFor          time.Duration // what it takes has to pass its checks for so long
	disturbed          span          // an operation wants a slot from then on, and takes so long
	holds              time.Time     // since when it has one
}

// fates draws what comes over the nodes: little by little all of it ends, but for the dead.
func (w *world) fates(r *rand.Rand) {
	within := func(longest time.Duration) span {
		from := time.Duration(r.Int64N(int64(lastTrouble - longest)))
		return span{from, from + time.Duration(r.Int64N(int64(longest))) + time.Minute}
	}
	share := []int{0, 10, 30, 100}[r.IntN(4)] // of a thousand, of each sort
	racks := map[string]span{}
	if w.ill { // the same for many runs: something, and not so much that they halt
		share = []int{10, 20}[r.IntN(2)]
		racks[w.budget.Nodes[w.names[r.IntN(w.nodes)]]] = within(50 * time.Minute)
	}
	dead := map[string]bool{} // racks with one; each leaves room
	w.spared = true
	for _, m := range w.machines {
		rack := w.budget.Nodes[m.name]
		if _, drawn := racks[rack]; !drawn {
			racks[rack] = span{}
			if share > 0 && r.IntN(4) == 0 {
				racks[rack] = within(50 * time.Minute)
			}
		}
		is := func() bool { return r.IntN(1000) < share }
		if m.mute = racks[rack]; is() {
			m.mute = within(40 * time.Minute)
		}
		if is() {
			m.cutOff = within(time.Hour)
		}
		if is() {
			m.sick = within(40 * time.Minute)
		}
		if is() {
			m.badFor = time.Duration(1+r.Int64N(50)) * time.Minute
		}
		if is() && !dead[rack] && len(dead) < w.budget.Overall/4 {
			dead[rack], m.mute = true, span{0, 1 << 62}
		}
		if r.IntN(20) == 0 {
			m.disturbed = within(30 * time.Minute)
		}
		if r.IntN(4) == 0 {
			m.judgesFor = time.Duration(1+r.Int64N(10)) * time.Minute
		}
		w.spared = w.spared && m.mute == span{} && m.cutOff == span{} && m.sick == span{} && m.badFor == 0
	}
}

// look is what a node does at every tick.
func (m *machine) look(w *world) {
	now, at := w.now(), w.now().Sub(begins)
	if overlay := w.registry.overlay(m.name); overlay != "" && overlay != m.overlay && !m.cutOff.has(at) {
		m.overlay, m.took, m.well, m.news = overlay, now, now, true
	}
	if judges := now.Sub(m.took) < m.judgesFor; judges != m.judges {
		m.judges, m.news = judges, true
	}
	bad := m.badFor > 0 && m.overlay != w.had[m.name] && w.had[m.name] != "" && now.Sub(m.took) < m.badFor
	if ill := bad || m.sick.has(at); ill != m.trouble {
		m.trouble, m.well, m.news = ill, now, true
	}
}

// report sends what a node has to say, where it has a way to the service.
func (m *machine) report(w *world) {
	now := w.now()
	if m.mute.has(now.Sub(begins)) {
		return
	}
	if !m.news && now.Sub(m.sent) < reportsEvery {
		return
	}
	w.observer.called(m.name, now)
	w.standing.RLock()
	h := w.service.hub
	w.standing.RUnlock()
	if h == nil {
		return
	}
	m.seq++
	one := spec.NewReport(&spec.Status{Fleet: "metal", Node: m.name, BootID: "b1", Health: spec.HealthOK, Sync: spec.SyncCurrent, Tracking: spec.Following, Generation: 1, Overlay: m.overlay})
	one.Key, one.Grade, one.Seq, one.Time, one.Interval = m.id, spec.KeyPinned, m.seq, now, int64(reportsEvery/time.Second)
	one.Axes.Sync.Since, one.Axes.Health.Since = m.took, m.well
	if m.trouble {
		one.Axes.Health.State, one.Axes.Health.Detail = "degraded", "a fan"
	}
	well := later(m.well, m.took)
	if m.judges {
		one.Axes.Activity.State, well = string(spec.ActivitySoaking), now
	}
	// It is so whether or not the service has it: an error does not mean that it was not written.
	w.observer.heard(m.name, said{now, m.overlay, m.trouble, m.judges, well})
	opened, raw, err := w.signed(m, one, h)
	if err == nil {
		err = h.Take(w.Context(), opened, raw, m.name)
	}
	var refused *hub.RefusedError
	if errors.As(err, &refused) {
		w.Errorf("a report of %s: %v", m.name, err)
	}
	if err != nil {
		return // it is sent again
	}
	m.sent, m.news = now, false
}

// signed returns a report as the service opens it, and as the node signs it; unsigned where nobody who
// drives verifies reports: most of a run's time would go there.
func (w *world) signed(m *machine, one *spec.Report, h *hub.Hub) (opened *spec.Report, raw []byte, err error) {
	if len(w.drivers) > 0 && !slices.ContainsFunc(w.drivers, func(d *driving) bool { return d.keys != nil }) {
		report.Bound(one, w.now())
		return one, nil, nil
	}
	data, err := one.Encode()
	if err != nil {
		return nil, nil, err
	}
	if raw, err = sign.SignReport(m.key, data); err == nil {
		opened, err = h.Open(raw)
	}
	return opened, raw, err
}

// slot has a node ask for a slot where an operation wants one, and give it back behind that.
func (m *machine) slot(w *world) {
	w.slotting.Lock()
	defer w.slotting.Unlock()
	w.standing.RLock()
	h := w.service.hub
	w.standing.RUnlock()
	now := w.now()
	at := now.Sub(begins)
	if h == nil || m.disturbed.to == 0 || m.mute.has(at) {
		return
	}
	w.proofs++
	proof := hub.Proof{Key: m.id, Boot: "b1", At: now.Add(time.Duration(w.proofs) * time.Microsecond), Place: m.name}
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	switch {
	case m.holds.IsZero() && at >= m.disturbed.from:
		if h.TakeSlot(ctx, slotGroup, m.name, proof) == nil {
			m.holds = now
			w.observer.slot(m.name, true, w.isUnderWay())
		}
	case !m.holds.IsZero() && now.Sub(m.holds) >= m.disturbed.to-m.disturbed.from:
		w.observer.slot(m.name, false, false) // its operation is over, whether or not the service hears that
		if h.FreeSlot(ctx, slotGroup, m.name, proof) == nil {
			m.holds, m.disturbed = time.Time{}, span{}
		}
	}
}

// tick lets time pass: nodes look, take, report and ask for slots.
func (w *world) tick(d time.Duration) {
	w.Helper()
	w.clock.Add(int64(d))
	w.service.look()
	for _, m := range w.machines {
		m.look(w)
	}
	var all sync.WaitGroup
	line := make(chan *machine)
	for range min(200, len(w.machines)) {
		all.Go(func() {
			for m := range line {
				m.report(w)
			}
		})
	}
	for _, m := range w.machines {
		line <- m
	}
	close(line)
	all.Wait()
	w.observer.tick()
	for _, m := range w.machines {
		m.slot(w)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
