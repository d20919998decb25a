// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// judged is a change that has not proved itself: what is in effect, what is known of
// it, and what it is judged by.
type judged struct {
	found  *track.Found
	record gate.Record
}

func (j *judged) checks() []spec.HealthCheck {
	if j.found.Overlay.Gates == nil {
		return nil
	}
	return j.found.Overlay.Gates.Checks
}

// judging returns the change that is being judged, nil when there is none.
func (n *Node) judging() (*judged, error) {
	record, err := gate.Load(n.path(paths.RunGates))
	if err != nil || record == nil || n.follower == nil {
		return nil, err
	}
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	if !record.Of(n.scopes.Root, found.Generation.Overlay) {
		return nil, nil
	}
	return &judged{found, *record}, nil
}

// beginGates has the change that was put in effect judged. The deadline of its boot ends here:
// it came up, and from now on the gates decide.
func (n *Node) beginGates(g state.Generation) error {
	if err := n.endTrial(); err != nil { // it was reached, or confirmed
		return err
	}
	n.boot.Live.Applied, n.boot.Live.Stuck = &g, ""
	if err := n.remember(); err != nil {
		return err
	}
	r := gate.Record{Root: n.scopes.Root, Overlay: g.Overlay, Began: seconds(n.up())}
	if err := r.Save(n.path(paths.RunGates)); err != nil {
		return err
	}
	n.recordStep("judged", events.With("generation", g.Generation), events.With("epoch", g.Epoch), events.With("overlay", g.Overlay))
	return n.endDeadline()
}

// endGates forgets what was judged, and that anything else than what is current was in effect.
func (n *Node) endGates() error {
	if err := durable.Remove(n.path(paths.RunGates)); err != nil {
		return err
	}
	if n.boot.Live.Applied != nil || n.boot.Live.Stuck != "" {
		n.boot.Live.Applied, n.boot.Live.Stuck = nil, ""
		if err := n.remember(); err != nil {
			return err
		}
	}
	return n.endDeadline()
}

// again is how long after a look the next one is due, when none was found to be.
const again = time.Minute

// Judge looks once at the change that has not proved itself, and does what follows: it
// becomes current, or what ran before comes back. It returns how long to wait before
// the next look, 0 when nothing is judged any more.
//
// The looking holds no lock: a check may take minutes. What the node has become
// meanwhile decides whether the result still means anything.
func Judge(ctx context.Context, o Options, bootstrap *spec.Bootstrap) (wait time.Duration, st *spec.Status, err error) {
	n, err := Read(ctx, o, bootstrap)
	if err != nil {
		return 0, nil, err
	}
	before, err := n.judging()
	if err = errors.Join(err, n.Close()); err != nil {
		return 0, nil, err
	}
	if before == nil {
		return 0, nil, watch(ctx, o, bootstrap)
	}
	looked := n.prober().Look(ctx, before.record, before.checks())
	if ctx.Err() != nil {
		return 0, nil, ctx.Err()
	}
	if n, err = Open(ctx, o, bootstrap); err != nil {
		return 0, nil, err
	}
	wait, st, err = n.judge(ctx, before, looked)
	return wait, st, errors.Join(err, n.Close())
}

func (n *Node) judge(ctx context.Context, before *judged, looked gate.Record) (wait time.Duration, st *spec.Status, err error) {
	if err := n.settle(ctx); err != nil { // else what is undone and what is judged would be put back at once
		return 0, nil, err
	}
	now, err := n.judging()
	if err != nil || now == nil {
		return 0, nil, err
	}
	if now.record.Overlay != before.record.Overlay || now.record.Began != before.record.Began {
		return time.Second, nil, nil // another change was put in effect
	}
	if err := looked.Save(n.path(paths.RunGates)); err != nil {
		return 0, nil, err
	}
	now.record = looked
	t := &turn{event: decide.Judged, next: now.found, judged: now}
	if err := n.cycle(ctx, t); err != nil || t.status == nil {
		return t.wait, t.status, err
	}
	return t.wait, t.status, n.keep(t.status)
}

// verdict says whether a change did what it should. One that was rejected by an agent
// which was ended before it had acted stays so; one that the node goes on with all the same
// is good when its checks hold.
func (n *Node) verdict(s *state.State, j *judged) gate.Verdict {
	if s.Staged != nil && s.Staged.Same(j.found.Generation) && n.boot.Live.Stuck == "" {
		why := ""
		switch {
		case j.found.Generation.IsAhead():
			why = s.Staged.FailedAhead
		case s.Staged.Again == 0: // else a boot is to try it, as this one did
			why = s.Staged.Failed
		}
		if why != "" {
			return gate.Verdict{State: gate.Failed, Why: why}
		}
	}
	return j.record.Judge(j.checks())
}

// nextLook is how long it takes until a check is to be looked at.
func (n *Node) nextLook(j *judged) time.Duration {
	return max(time.Second, time.Duration(j.record.Judge(j.checks()).Next-seconds(n.up()))*time.Second)
}

func (n *Node) prober() gate.Prober {
	p := gate.Prober{Root: n.o.Root, Log: n.path(paths.RunChecks), Runner: n.runner(), Now: func() int64 { return seconds(n.up()) }}
	if p.Runner == nil {
		p.Runner = new(process.Group)
	}
	if n.o.Root == "" && process.SystemdRuns() {
		p.Units = process.Manager{}
	}
	return p
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
