// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// way is how a node gets back to what ran before a change that failed.
type way string

// Ways back.
const (
	backLive   way = "live"   // the layer stayed: the overlay is to blame, and what ran before is put in effect
	backReboot way = "reboot" // both changed, or what only a boot changes: the whole pair comes back
	backNone   way = "none"   // nothing good is known here, or it would be forgotten with this boot
)

// circumstances are what the way back depends on.
type circumstances struct {
	good      bool // something ran well before, and can be verified
	attached  bool // caisson did not boot this host
	sameLayer bool // what ran before belongs to the layer that is stacked
	live      bool // the rest of it can be changed on a running root
	remembers bool // what is noted now is there after a reboot
	soft      bool // a soft-reboot leads back, over which memory lasts
}

// wayBack is the decision.
func wayBack(c circumstances) way {
	switch {
	case !c.good:
		return backNone
	case c.attached || c.sameLayer && c.live:
		return backLive
	case c.remembers, c.soft:
		return backReboot
	}
	return backNone
}

// goBack undoes a change that did not pass its gates. That it was rejected is on disk before
// anything is done, so that a cut at any point ends with what ran before. What was
// rejected is not tried again until somebody says so.
func (n *Node) goBack(ctx context.Context, j *judged, why string) (wait time.Duration, st *spec.Status, err error) {
	s, err := n.folder.Load()
	if err != nil {
		return 0, nil, err
	}
	failed := j.found.Generation
	c := circumstances{attached: n.boot.Mode == spec.ModeAttached, remembers: n.boot.Disk != "" && !n.boot.ReadOnly}
	var good *track.Found
	if best := s.Best(); best != nil && !best.Pair(failed) {
		if good, err = n.follower.Recall(best); err != nil {
			n.o.Say("what ran before cannot come back: %v", err)
		}
	}
	if good != nil {
		c.good, c.sameLayer = true, n.runsHere(good.Generation.Layer)
		c.live, _ = n.extent(j.found, good)
		c.soft = n.softBack(ctx, s, failed, why)
	}
	to := wayBack(c)
	if to == backNone {
		return n.stay(ctx, j, why)
	}
	n.record("gate-failed", field{"generation", failed.Generation}, field{"overlay", failed.Overlay}, field{"back", good.Generation.Generation}, field{"by-way-of", to}, field{"why", why})
	n.note(failed, nil, spec.Event{Event: spec.EventGateFailed, Why: why, Did: fmt.Sprintf("goes back to %s (%s), and does not try it again", n.nameBeside(good.Generation, failed), to), Console: blackbox.Console(kmsg)})
	s.Reject(failed, why, time.Now())
	if err := n.folder.Save(s); err != nil {
		return 0, nil, err
	}
	n.setSync(spec.SyncBehind, rejectedText(failed, why))
	if to == backReboot {
		if err := n.remember(); err != nil {
			return 0, nil, err
		}
		class, reason, err := n.Reboot(ctx)
		n.o.Say("%s did not pass its gates: %s; going back to %s by a %s: %s", n.nameBeside(failed, good.Generation), why, n.nameBeside(good.Generation, failed), class, reason)
		return again, nil, err
	}
	st, err = n.backLive(ctx, good, failed, why)
	return 0, st, err
}

// softBack reports whether a soft-reboot leads to what ran before, once what failed is
// rejected: its images are here.
func (n *Node) softBack(ctx context.Context, s *state.State, failed state.Generation, why string) bool {
	s = s.Clone()
	s.Reject(failed, why, time.Now())
	next, class, _, err := n.destination(ctx, s, nil)
	return err == nil && next != nil && class == spec.ClassSoftReboot && len(next.Missing) == 0
}

// nameBeside names one of two generations: by its layer, too, where they differ in that. The
// two may be the same one, on the layer that it came with and on the one before.
func (n *Node) nameBeside(g, other state.Generation) string {
	name := fmt.Sprintf("generation %d", g.Generation)
	if g.Layer != other.Layer {
		name += " on layer " + n.versionOf(g.Layer)
	}
	return name
}

// versionOf is the version of a layer that is here, else its digest.
func (n *Node) versionOf(layer string) string {
	if store, err := n.store(); err == nil {
		here := stage.Stager{Store: store, Talk: stackTime, Say: n.o.Say}
		if l, err := here.Describe(context.Background(), layer); err == nil && l.Version != "" {
			return l.Version
		}
	}
	return layer
}

// backLive puts in effect again what ran before.
func (n *Node) backLive(ctx context.Context, good *track.Found, failed state.Generation, why string) (*spec.Status, error) {
	n.boot.Live.Applied, n.boot.Live.Stuck = &good.Generation, ""
	if err := n.remember(); err != nil {
		return nil, err
	}
	if err := durable.Remove(n.path(paths.RunGates)); err != nil {
		return nil, err
	}
	n.bring(ctx, &good.Overlay)
	result, err := n.putBack(context.WithoutCancel(ctx), good, failed)
	if err != nil {
		return nil, err
	}
	n.noteServices(&good.Overlay)
	n.recordChanges(result, good.Generation.Generation, fmt.Sprintf("generation %d did not pass its gates", failed.Generation))
	n.o.Say("generation %d did not pass its gates: %s; generation %d is in effect again", failed.Generation, why, good.Generation.Generation)
	if err := errors.Join(n.retire(ctx, result), n.endDeadline()); err != nil {
		return nil, err
	}
	return n.report(good, result)
}

// stay leaves in effect what failed: there is nothing better. It is looked at from the
// start, and counts as good when it holds after all.
func (n *Node) stay(ctx context.Context, j *judged, why string) (time.Duration, *spec.Status, error) {
	if n.boot.Live.Stuck != why {
		n.record("gate-failed", field{"generation", j.found.Generation.Generation}, field{"by-way-of", backNone}, field{"why", why})
		n.note(j.found.Generation, nil, spec.Event{Event: spec.EventGateFailed, Why: why, Did: "goes on with it: there is nothing better", Console: blackbox.Console(kmsg)})
		n.boot.Live.Stuck = why
		if err := n.remember(); err != nil {
			return 0, nil, err
		}
	}
	r := j.record
	r.Checks = map[string]gate.Progress{}
	for name, p := range j.record.Checks {
		r.Checks[name] = gate.Progress{Looked: p.Looked, Why: p.Why}
	}
	if err := r.Save(n.path(paths.RunGates)); err != nil {
		return 0, nil, err
	}
	st, err := n.Status(ctx)
	if err != nil {
		return 0, nil, err
	}
	next := r.Judge(j.checks()).Next
	return max(time.Second, time.Duration(next-seconds(uptime()))*time.Second), st, n.keep(st)
}

// pass notes that what is in effect is good.
func (n *Node) pass(g state.Generation, why string) error {
	if err := n.keepGood(g, why); err != nil {
		return err
	}
	return n.endGates()
}

// reboot starts the machine over.
func (n *Node) reboot(ctx context.Context) error {
	if n.o.Reboot != nil {
		return n.o.Reboot(ctx)
	}
	return process.Manager{}.Reboot(ctx)
}

// rejected says why a generation must not be put in effect here, "" where it may. The
// attempts of the boot that is running now do not count against it.
func (n *Node) rejected(g state.Generation) string {
	switch {
	case g.IsAhead():
		return g.FailedAhead
	case g.Failed != "":
		return g.Failed
	case g.Attempts >= state.MaxAttempts && !g.Pair(n.boot.Generation):
		return fmt.Sprintf("%d boots of it were begun, and none came up", g.Attempts)
	}
	return ""
}

func rejectedText(g state.Generation, why string) string {
	if g.IsAhead() {
		return fmt.Sprintf("generation %d waits for a reboot into its layer: on the one that runs it failed: %s", g.Generation, why)
	}
	return fmt.Sprintf("generation %d is rejected on this node: %s; --retry tries it again", g.Generation, why)
}

// decline goes on with what runs, where what the registry has was rejected.
func (n *Node) decline(ctx context.Context, g state.Generation, why string) (*spec.Status, error) {
	n.setSync(spec.SyncBehind, rejectedText(g, why))
	if err := n.remember(); err != nil {
		return nil, err
	}
	return n.Apply(ctx)
}
