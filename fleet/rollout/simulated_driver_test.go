// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/spec"
)

// driving is one rollout, and who drives it now.
type driving struct {
	w       *world
	name    string
	undoAt  time.Duration // when an operator undoes it; 0 is never
	undone  bool          // an operator did, or tried
	started bool
	ended   string // its phase, and why

	keys *report.Reporters // on the disk of who drives: what was heard outlives a run; nil: the service is believed

	mu     sync.Mutex // held while a step is taken
	at     atomic.Pointer[instance]
	works  atomic.Bool
	lives  int
	absent time.Time // until then nobody drives
	waits  string    // what for, at the last step
}

// instance is a process that drives.
type instance struct {
	who  string
	d    *rollout.Driver
	kill context.CancelFunc
}

// work does all that is to be done now, and reports whether something was.
func (d *driving) work(ctx context.Context) (moved bool) {
	if d.ended != "" || d.w.now().Before(d.absent) || !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	is := d.at.Load()
	if is == nil {
		d.lives++
		is = &instance{who: fmt.Sprintf("driver-%s-%d", d.name, d.lives)}
		p := d.w.publisher(is.who)
		is.d = &rollout.Driver{Publisher: *p, Policy: d.w.policy(d.w), By: publish.By{Author: is.who}, Name: d.name,
			Compile: func(context.Context, *spec.RolloutPlan) ([]publish.Node, error) { return d.w.compiled(d.name), nil },
			Reports: d.w.service.reports(is.who, d.keys), Slots: d.w.service.slots(is.who),
			Now: d.w.now, Say: d.w.say}
	}
	ctx, is.kill = context.WithCancel(ctx)
	defer is.kill()
	d.at.Store(is)
	p := &is.d.Publisher
	p.Now = d.w.now()
	if d.w.registry.isUp() {
		d.w.bury(ctx)
	}
	ctx = impatient(p, ctx)
	d.works.Store(true)
	defer d.works.Store(false)
	var err error
	switch due := d.undoAt > 0 && d.w.now().Sub(begins) >= d.undoAt; {
	case !d.started:
		_, _, err = rollout.Start(ctx, p, d.w.policy(d.w), is.d.By, d.w.order(d.name, d.w.now()))
		d.started = err == nil || strings.Contains(fmt.Sprint(err), "already")
	case due:
		d.undone = true
		d.w.observer.undoes(true)
		_, err = rollout.Undo.Do(ctx, p, d.w.policy(d.w), is.d.By, d.name)
		d.w.observer.undoes(false)
		if moved = err == nil; moved || strings.Contains(err.Error(), "it is undone") {
			d.undoAt = 0
		}
	case !d.w.allStarted(): // else the other's nodes would be part of the plan
		return false
	default:
		var last rollout.Decision
		if moved, last, err = is.d.Step(ctx); last.Reason != d.waits {
			d.waits = last.Reason
			d.w.say("%s: %s", is.who, d.waits)
		}
	}
	if d.w.isDead(is.who) {
		d.at.Store(nil)
		return false
	}
	if err != nil {
		d.w.say("%s: %v", is.who, err)
		if d.undoAt == 0 && d.started && !errors.Is(err, errAway) {
			d.end()
		}
	}
	return moved
}

// finish waits for a step that goes on in the middle of another one, which has ended already: no time
// passes for nodes while a driver takes a step.
func (d *driving) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
}

func (w *world) allStarted() bool {
	for _, d := range w.drivers {
		if !d.started {
			return false
		}
	}
	return true
}

// end notes that a rollout has ended, where it has.
func (d *driving) end() {
	if row := d.w.read().Rollouts()[d.name]; row.Phase != "" && !underWay(row) {
		d.ended = row.Phase + ": " + row.Reason
	}
}

func underWay(row spec.Rollout) bool {
	if row.Phase == spec.RolloutRunning {
		return true
	}
	for _, w := range row.Waves {
		for _, why := range w.Stayed {
			if why == "its way back is not done" {
				return true
			}
		}
	}
	return false
}

func (w *world) isUnderWay() bool {
	for _, row := range w.read().Rollouts() {
		if underWay(row) {
			return true
		}
	}
	return false
}
