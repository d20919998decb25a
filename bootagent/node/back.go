// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// goBack undoes a change that did not pass its gates. That it was rejected is on disk before
// anything is done, so that a cut at any point ends with what ran before. What was
// rejected is not tried again until somebody says so. Where the disk does not take that, it
// reports that it is to be decided anew: over which ways back it lasts is another matter.
func (n *Node) goBack(ctx context.Context, t *turn, step decide.Step) (last bool, err error) {
	s, err := n.folder.Load()
	if err != nil {
		return true, err
	}
	failed, good, why := t.next.Generation, t.before, t.why
	way := map[decide.Act]string{decide.BackLive: "live", decide.BackBoot: "reboot"}[step.Act]
	kept := n.folder.Unsaved() == nil
	s.Reject(failed, why, time.Now())
	if err := n.folder.SaveVerdict(s); err != nil {
		return true, err
	}
	if kept && n.folder.Unsaved() != nil {
		return false, nil
	}
	n.recordStep("gate-failed", events.With("generation", failed.Generation), events.With("overlay", failed.Overlay), events.With("back", good.Generation.Generation), events.With("by-way-of", way), events.With("why", why))
	n.note(failed, nil, spec.Event{Event: spec.EventGateFailed, Transition: n.decided, Why: why, Did: fmt.Sprintf("goes back to %s (%s), and does not try it again", n.nameBeside(good.Generation, failed), way), Console: blackbox.Console(kmsg)})
	n.setSync(spec.SyncBehind, rejectedText(failed, why))
	if step.Act == decide.BackLive {
		t.status, err = n.backLive(ctx, good, failed, why)
		return true, err
	}
	n.boot.Live.Stuck = ""
	if err := n.remember(); err != nil {
		return true, err
	}
	class, reason, err := n.Reboot(ctx)
	n.say("%s did not pass its gates: %s; going back to %s by a %s: %s", n.nameBeside(failed, good.Generation), why, n.nameBeside(good.Generation, failed), class, reason)
	t.wait = again
	return true, err
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
		here := stage.Stager{Store: store, Talk: stackTime, Say: n.say}
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
	n.say("generation %d did not pass its gates: %s; generation %d is in effect again", failed.Generation, why, good.Generation.Generation)
	if err := errors.Join(n.retire(ctx, result), n.endDeadline()); err != nil {
		return nil, err
	}
	return n.report(good, result)
}

// stay leaves in effect what failed: there is nothing better. It is looked at from the
// start, and counts as good when it holds after all.
func (n *Node) stay(ctx context.Context, t *turn) error {
	j, why := t.judged, t.why
	if n.boot.Live.Stuck != why {
		n.recordStep("gate-failed", events.With("generation", j.found.Generation.Generation), events.With("by-way-of", "none"), events.With("why", why))
		n.note(j.found.Generation, nil, spec.Event{Event: spec.EventGateFailed, Transition: n.decided, Why: why, Did: "goes on with it: there is nothing better", Console: blackbox.Console(kmsg)})
		n.boot.Live.Stuck = why
		if err := n.remember(); err != nil {
			return err
		}
	}
	looked := j.record.Checks
	j.record.Checks = map[string]gate.Progress{}
	for name, p := range looked {
		j.record.Checks[name] = gate.Progress{Looked: p.Looked, Why: p.Why}
	}
	if err := j.record.Save(n.path(paths.RunGates)); err != nil {
		return err
	}
	var err error
	t.wait = n.nextLook(j)
	t.status, err = n.Status(ctx)
	return err
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
	begun := g.Attempts
	if g.Pair(n.boot.Generation) {
		begun = 0
	}
	return decide.Refused(g, begun, time.Now().Unix())
}

func rejectedText(g state.Generation, why string) string {
	if g.IsAhead() {
		return fmt.Sprintf("generation %d waits for a reboot into its layer: on the one that runs it failed: %s", g.Generation, why)
	}
	if g.Again != 0 {
		return fmt.Sprintf("generation %d was taken back: %s; it is tried again at %s", g.Generation, why, time.Unix(g.Again, 0).UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("generation %d is rejected on this node: %s; --retry tries it again", g.Generation, why)
}
