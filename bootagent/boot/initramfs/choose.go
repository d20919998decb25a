// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/screen"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// choose returns the overlay and the layer that this boot will run, all of it
// verified and in the store. What it tries, and in which order, is decided by the table of
// package decide: the registry, a medium, what ran well before, and then all of it again.
func (b *boot) choose(ctx context.Context) (*spec.Overlay, *spec.Layer, error) {
	begun, tries := time.Now(), 0
	hindered := begun // since when what failed may come of the arguments of a kexec
	for pause := b.limits.pause; ; pause = min(2*pause, 30*time.Second) {
		b.progress.Made()
		tries++
		newest := b.newest(ctx, b.ask, false)
		if errors.Is(newest.err, errStartOver) {
			return nil, nil, newest.err
		}
		var older notBegun
		b.heard = newest.err == nil || reached(newest.err) || errors.As(newest.err, &older)
		if !argumentsMay(newest.err, b.brought) {
			hindered = time.Now()
		}
		if newest.step.Act == decide.Enter {
			return b.fetched(newest)
		}
		b.sayNot(newest)
		if newest.step.Act == decide.AskMedium {
			carried := b.fromMedium(ctx)
			if errors.Is(carried.err, errStartOver) {
				return nil, nil, carried.err
			}
			if carried.step.Act == decide.Enter {
				b.record.Source = spec.SourceFetched
				return &carried.found.Overlay, carried.layer, nil
			}
		}
		why, failed := b.record.SyncDetail, screen.Failure{Tries: tries, Since: time.Since(begun), Err: newest.err, Next: pause}
		found, layer, err := b.fallBack(ctx)
		if errors.Is(err, errStartOver) {
			return nil, nil, err
		}
		step := b.decided.Next(b.backFacts(err == nil, hindered))
		b.transition = step.Name
		switch step.Act {
		case decide.Enter:
			b.record.Source = spec.SourceCached
			b.say("booting the last good overlay, generation %d", found.Generation.Generation)
			b.note(about(found.Generation, spec.Event{Event: spec.EventFellBack, Transition: newest.step.Name, Why: why, Did: "ran the last good generation"}))
			return &found.Overlay, layer, nil
		case decide.StartOver:
			return nil, nil, fmt.Errorf("%w: %s: %w", errStartOver, step.Why, newest.err)
		case decide.AskAgain:
			b.showStuck(ctx, failed, err)
			if tries >= hintTries {
				b.hint(ctx, why)
			}
		}
		time.Sleep(pause)
	}
}

// showStuck shows why nothing is entered; back is why nothing that ran well before is.
func (b *boot) showStuck(ctx context.Context, failed screen.Failure, back error) {
	if !errors.Is(back, track.ErrNothing) {
		b.say("no way back: %v", back)
		if b.hasGood() { // else it is the one that was just asked for
			failed.NoWay = back
		}
	}
	failed.Rescue = b.letIn(ctx)
	b.show(failed)
}

// asked holds the result of asking for the newest generation.
type asked struct {
	found *track.Found
	layer *spec.Layer // prepared, of Enter
	step  decide.Step
	err   error // why found is not entered
}

// newest asks for the newest generation, and prepares what is to be entered.
func (b *boot) newest(ctx context.Context, ask func(context.Context) (*track.Found, error), medium bool) (a asked) {
	a.found, a.err = ask(ctx)
	a.step = b.decided.Next(b.askedFacts(a.found, a.err, medium))
	b.transition = a.step.Name
	switch a.step.Act {
	case decide.AskMedium:
		return a
	case decide.FallBack:
		if a.err == nil {
			a.err = notBegun{a.found.Generation.Generation, a.step}
		}
		return a
	case decide.EnterOld:
		good, err := b.follower().Good(false)
		if err != nil {
			a.err, a.step = err, b.decided.Next(fetchFacts(err, medium))
			return a
		}
		a.found = good[0]
	}
	b.say("overlay of node %s, generation %d, layer %s", a.found.Overlay.Node, a.found.Generation.Generation, a.found.Generation.Layer)
	if a.layer, a.err = b.prepareInTime(ctx, b.source, a.found); !errors.Is(a.err, errStartOver) {
		a.step = b.decided.Next(fetchFacts(a.err, medium))
	}
	return a
}

// fetched returns choose's results for an answer of the registry.
func (b *boot) fetched(a asked) (_ *spec.Overlay, _ *spec.Layer, err error) {
	b.record.Source = spec.SourceFetched
	// The registry has it, and it comes up.
	live := &b.record.Live
	if live.Had, err = spec.RootID(&a.found.Overlay, a.found.Overlay.Layer); err != nil {
		return nil, nil, err
	}
	live.Began = live.Had
	return &a.found.Overlay, a.layer, nil
}

// sayNot says why what was asked for is not entered.
func (b *boot) sayNot(a asked) {
	b.record.Sync, b.record.SyncDetail = track.Describe(a.err)
	var older notBegun
	if errors.As(a.err, &older) || tooLittle(a.err) || errors.Is(a.err, errSlow) {
		b.record.Sync = spec.SyncBehind
	}
	b.say("%s: %v", b.record.Sync, a.err)
	if b.disk != "" && track.OfDisk(a.err) {
		b.trouble("state disk %s: %v", b.disk, a.err)
		b.again(a.err)
	}
	b.note(blackbox.Blame(spec.Event{Event: spec.EventAsked, Transition: a.step.Name}, a.err))
}

// notBegun is why a newer generation is not begun.
type notBegun struct {
	generation uint64
	step       decide.Step
}

func (n notBegun) Error() string { return fmt.Sprintf("generation %d: %s", n.generation, n.step.Why) }

// askedFacts returns the facts that decide how to go on after asking.
func (b *boot) askedFacts(found *track.Found, err error, medium bool) *decide.Facts {
	f := &decide.Facts{Event: decide.Boot, Offer: decide.Offer{Medium: medium}}
	if err != nil {
		f.Offer.Failed, f.Offer.Unreached = true, !reached(err)
		return f
	}
	f.Offer.Held, f.Offer.Unchanged, f.Offer.Generation = found.Held, found.Unchanged, found.Generation
	f.Offer.Attempts, f.Offer.Uncounted = b.begun(found.Generation), b.readOnly != nil
	if s, err := b.folder.Load(); err == nil { // else nothing is known to fall back on
		f.Best = s.Best()
	}
	return f
}

// fetchFacts returns the facts that decide how to go on after preparing a root.
func fetchFacts(err error, medium bool) *decide.Facts {
	f := &decide.Facts{Event: decide.Fetched, Fetch: decide.Fetch{Medium: medium}}
	if err != nil {
		f.Fetch.Why, f.Fetch.Late, f.Fetch.TooLarge, f.Fetch.Unreached = err.Error(), errors.Is(err, errSlow), tooLittle(err), !reached(err)
	}
	return f
}

// ask brings the network up where it is not, and syncs.
func (b *boot) ask(ctx context.Context) (*track.Found, error) {
	end := b.trace.Begin("network")
	err := b.network(ctx)
	end(err)
	if err != nil {
		return nil, err
	}
	defer b.stager(b.source).Waiting("the registry's answer")()
	if err := b.pickWay(ctx); err != nil {
		return nil, err
	}
	return b.answer(ctx)
}

// answer returns what the source has for this node.
func (b *boot) answer(ctx context.Context) (*track.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limits.ask)
	defer cancel()
	end := b.trace.Begin("overlay")
	found, err := b.sync(ctx)
	end(err)
	if err != nil {
		return nil, err
	}
	b.record.Sync, b.record.SyncDetail = found.Axis()
	if b.record.Sync != spec.SyncCurrent {
		b.say("%s: %s", b.record.Sync, b.record.SyncDetail)
	}
	return found, nil
}

// sync asks by what the machine is, and by the name that DHCP gave it only where
// nothing is published for that: the name is the weakest of its claims, and must
// not be held against an overlay that the hardware has found.
func (b *boot) sync(ctx context.Context) (*track.Found, error) {
	f := b.follower()
	found, name, err := b.claim(ctx, f, b.lease, f.Sync)
	if err != nil {
		return nil, err
	}
	return found, b.folder.SetDHCPName(name)
}

// claim asks so by one way. name is that of DHCP where the answer is to it.
func (b *boot) claim(ctx context.Context, f *track.Tracker, way *state.Lease, ask func(context.Context) (*track.Found, error)) (found *track.Found, name string, err error) {
	found, err = ask(ctx)
	if errors.Is(err, oci.ErrNotFound) && b.id.Node == "" && way != nil && way.HostName != "" {
		name = strings.ToLower(way.HostName)
		f.Identity.Node = name
		found, err = ask(ctx)
	}
	return found, name, err
}

func (b *boot) follower() *track.Tracker {
	return &track.Tracker{Source: b.source, Bootstrap: b.bootstrap, Identity: b.id, Folder: b.folder, Build: b.build, Say: b.say, CoreOnly: true}
}
