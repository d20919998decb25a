// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"math/rand/v2"
	"strings"
	"time"
)

// cuts are what may come over a run in the middle of a request.
var cuts = []struct {
	name string
	do   func(w *world, who string, away time.Duration) fate
}{
	{"the driver is killed", func(w *world, who string, away time.Duration) fate {
		w.gate.Lock()
		w.dead[who] = true
		w.gate.Unlock()
		for _, d := range w.drivers {
			if is := d.at.Load(); is != nil && is.who == who {
				d.absent = w.now().Add(away)
				is.kill()
			}
		}
		return refused
	}},
	{"the registry goes away", func(w *world, _ string, away time.Duration) fate {
		w.dark.Store(true)
		w.registry.setDown(true)
		w.later(away, func() { w.registry.setDown(false) })
		if (w.seed+uint64(w.requests.Load()))%2 == 0 {
			return unanswered // what was asked for is done
		}
		return refused
	}},
	// It ends as by a signal: what it took is written, and what nodes ask meanwhile has no answer.
	{"the service ends", func(w *world, _ string, away time.Duration) fate {
		w.standing.Lock()
		defer w.standing.Unlock()
		w.service.stop()
		w.later(away, func() {
			w.standing.Lock()
			defer w.standing.Unlock()
			if w.service.hub == nil {
				w.service.start()
			}
		})
		return goes
	}},
}

// later has something done when a time has passed.
func (w *world) later(in time.Duration, do func()) {
	w.gate.Lock()
	defer w.gate.Unlock()
	w.restarts = append(w.restarts, restart{w.now().Add(in), do})
}

// cutAt has a run cut at a request, in one of the ways.
func (w *world) cutAt(request int64, how int, away time.Duration) {
	w.hooks[request] = func(who string) fate {
		w.cuts.Add(1)
		w.say("%s, for %s", strings.Replace(cuts[how].name, "driver", who, 1), away)
		return cuts[how].do(w, who, away)
	}
}

// drawnAway draws how long something is away: not at all, a little, or longer than nodes may be
// silent.
func drawnAway(r *rand.Rand) time.Duration {
	return []time.Duration{0, step, 2 * step, time.Duration(r.Int64N(int64(40 * time.Minute)))}[r.IntN(4)]
}
