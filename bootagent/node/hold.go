// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Remembers reports whether what an operator says on this node outlives its boot.
func (n *Node) Remembers() bool { return n.scopes.Disk != "" && !n.boot.ReadOnly }

// hold is what an operator says now, for a time that is without end when 0.
func (n *Node) hold(kind, reason string, lasts time.Duration) spec.Hold {
	h := spec.Hold{Kind: kind, Reason: reason, Author: n.o.By, Since: time.Now().Unix()}
	if lasts > 0 {
		h.Until = h.Since + int64(lasts/time.Second)
	}
	return h
}

func (n *Node) recordHold(event string, h spec.Hold, generation uint64) {
	fields := []events.Field{events.With("generation", generation), events.With("why", h.Reason)}
	if h.Until != 0 {
		fields = append(fields, events.With("until", state.Time(h.Until).Format(time.RFC3339)))
	}
	n.record(event, fields...)
}

// Freeze has the node keep what it has, until Forward or its time is over.
func (n *Node) Freeze(reason string, lasts time.Duration) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	h := n.hold(spec.HoldFreeze, reason, lasts)
	s.Keep(h)
	if err := n.folder.Save(s); err != nil {
		return err
	}
	n.recordHold("frozen", h, generationOf(s.Best()))
	return nil
}

func generationOf(g *state.Generation) uint64 {
	if g == nil {
		return 0
	}
	return g.Generation
}

// Forward ends what Freeze, Rollback and Pin began.
func (n *Node) Forward(why string) error {
	s, err := n.folder.Load()
	if err != nil || s.Tracking == spec.Following {
		return err
	}
	s.Follow(time.Now().Unix())
	if err := n.folder.Save(s); err != nil {
		return err
	}
	n.record("forward", events.With("generation", generationOf(s.Best())), events.With("why", why))
	return nil
}

// endHold ends a hold whose time is over.
func (n *Node) endHold() error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	return n.Forward("the time of the " + s.Hold.Kind + " is over")
}

// Pause has the node change nothing, until Resume or its time is over. It looks and
// reports all the same. What was protected can be changed by everybody.
func (n *Node) Pause(reason string, lasts time.Duration) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	h := n.hold(spec.HoldPause, reason, lasts)
	s.Paused = &h
	if err := n.folder.Save(s); err != nil {
		return err
	}
	n.recordHold("paused", h, generationOf(s.Best()))
	return n.Lift()
}

// Resume ends that. A pause of the fleet is the fleet's to end.
func (n *Node) Resume() error {
	s, err := n.folder.Load()
	if err != nil || s.Paused == nil {
		return err
	}
	s.Paused = nil
	if err := n.folder.Save(s); err != nil {
		return err
	}
	n.record("resumed", events.With("generation", generationOf(s.Best())))
	return nil
}

// Rollback goes back to the generation that this node ran well before the one that it
// runs, and keeps it. No registry is asked.
func (n *Node) Rollback(ctx context.Context, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.returnTo(ctx, n.hold(spec.HoldRollback, reason, lasts), func(kept []state.Generation, now state.Generation) *state.Generation {
		i := slices.IndexFunc(kept, func(g state.Generation) bool { return decide.Older(g, now) && g.Overlay != now.Overlay })
		if i < 0 {
			return nil
		}
		return &kept[i]
	})
}

// Pin goes to one of the generations that this node ran well, and keeps it.
func (n *Node) Pin(ctx context.Context, generation uint64, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.returnTo(ctx, n.hold(spec.HoldPin, reason, lasts), func(kept []state.Generation, _ state.Generation) *state.Generation {
		i := slices.IndexFunc(kept, func(g state.Generation) bool { return g.Generation == generation })
		if i < 0 {
			return nil
		}
		return &kept[i]
	})
}

// returnTo changes the node to the generation that choose returns. The decision is saved
// first: cut in between, the next look goes on with it. A change that fails is taken back,
// and the decision with it.
func (n *Node) returnTo(ctx context.Context, h spec.Hold, choose func(kept []state.Generation, now state.Generation) *state.Generation) (*spec.Status, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	before, err := n.running()
	if err != nil {
		return nil, err
	}
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	to := choose(s.Kept(), before.Generation)
	if to == nil {
		return nil, n.nothingKept(s)
	}
	next, err := n.follower.Return(to)
	if err != nil {
		return nil, err
	}
	if s.Trial.Pending() {
		s.Undo("somebody went back to generation " + fmt.Sprint(to.Generation))
	}
	was := s.Clone()
	s.Return(*to, n.layersHere(s)...)
	s.Keep(h)
	live, why := n.boot.Mode == spec.ModeAttached, ""
	if !live {
		live, why = n.extent(before, next)
	}
	save := n.folder.SaveVerdict
	if !live { // a boot would forget what is in memory only
		save = n.saveWord
	}
	if err := save(s); err != nil {
		return nil, err
	}
	n.recordHold(h.Kind, h, to.Generation)
	if !live {
		if err := n.wait(next, "a reboot: "+why); err != nil {
			return nil, err
		}
		return n.Status(ctx)
	}
	making, made := n.inTime(ctx, before, next, func(s *state.State, _ string) { *s = *was })
	result := made(items.Transact(making, n.items(next), n.items(before), n.journal, n.guard(next)))
	if t := (&turn{event: decide.Made, before: before, next: next, result: result, returns: true}); result.Err != nil {
		err := n.cycle(ctx, t)
		return t.status, errors.Join(err, n.folder.SaveVerdict(was))
	}
	if err := n.moveCorrections(before, next, result); err != nil {
		return nil, err
	}
	n.recordChanges(result, to.Generation, h.Kind)
	n.boot.Live.TakenBack, n.boot.Live.Without = nil, nil
	n.setSync(spec.SyncBehind, state.SayHold(&h))
	if err := n.arrive(next.Generation); err != nil {
		return nil, err
	}
	return n.report(next, result)
}

// saveWord saves what an operator says, or is asked, on a full disk by the room that is kept there.
func (n *Node) saveWord(s *state.State) error {
	if err := n.folder.MakeRoom(); err != nil {
		n.say("%v", err) // there may be room all the same
	}
	return n.folder.Save(s)
}

// arrive notes that this root runs a generation that is older than the one that it came
// up with.
func (n *Node) arrive(at state.Generation) error {
	if n.boot.Mode != spec.ModeAttached {
		n.goBy(at)
	}
	return n.remember()
}

// notKept is for a generation that this node does not have.
type notKept []string

func (n *Node) nothingKept(s *state.State) error {
	var list notKept
	for _, g := range s.Kept() {
		list = append(list, fmt.Sprint(g.Generation))
	}
	return list
}

func (k notKept) Error() string { return "this node keeps no such generation" }

func (k notKept) Hint() string {
	return "it keeps " + strings.Join(k, ", ") + "; 'caisson rollback' gives a node any other"
}
