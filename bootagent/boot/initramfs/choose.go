// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/boot/kexec"
	"github.com/caisson-os/caisson/bootagent/boot/screen"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/memory"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// choose returns the overlay and the layer that this boot will run, all of it
// verified and in the store. It tries the registry, then what was good before,
// and on a node that has neither it goes on trying. Where the registry is not reached, a
// medium that carries a layer stands in for it.
func (b *boot) choose(ctx context.Context) (*spec.Overlay, *spec.Layer, error) {
	begun, tries := time.Now(), 0
	cutOff := begun // since when nothing was reached
	for pause := b.limits.pause; ; pause = min(2*pause, 30*time.Second) {
		b.progress.Made()
		tries++
		found, err := b.ask(ctx)
		if reached(err) {
			cutOff = time.Now()
		}
		if err == nil {
			var layer *spec.Layer
			if layer, err = b.prepareInTime(ctx, b.source, found); err == nil {
				b.record.Source = spec.SourceFetched
				// The registry has it, and it is what comes up.
				live := &b.record.Live
				if live.Had, err = spec.RootID(&found.Overlay, found.Overlay.Layer); err != nil {
					return nil, nil, err
				}
				live.Began = live.Had
				return &found.Overlay, layer, nil
			}
		}
		if errors.Is(err, errStartOver) {
			return nil, nil, err
		}
		b.record.Sync, b.record.SyncDetail = track.Describe(err)
		var older notBegun
		var little *memory.TooLittle
		if errors.As(err, &older) || errors.As(err, &little) || errors.Is(err, errSlow) {
			b.record.Sync = spec.SyncBehind
		}
		b.say("%s: %v", b.record.Sync, err)
		if b.disk != "" && track.OfDisk(err) {
			b.trouble("state disk %s: %v", b.disk, err)
			b.again(err)
		}
		b.note(blackbox.Blame(spec.Event{Event: spec.EventAsked}, err))
		if !reached(err) {
			found, layer, mediumErr := b.fromMedium(ctx)
			if mediumErr == nil {
				b.record.Source = spec.SourceFetched
				return &found.Overlay, layer, nil
			}
			if errors.Is(mediumErr, errStartOver) {
				return nil, nil, mediumErr
			}
		}
		why, failed := b.record.SyncDetail, screen.Failure{Tries: tries, Since: time.Since(begun), Err: err, Next: pause}
		found, layer, err := b.fallBack(ctx)
		switch {
		case err == nil:
			b.record.Source = spec.SourceCached
			b.say("booting the last good overlay, generation %d", found.Generation.Generation)
			b.note(b.about(found.Generation, spec.Event{Event: spec.EventFellBack, Why: why, Did: "ran what ran well before"}))
			return &found.Overlay, layer, nil
		case errors.Is(err, errStartOver):
			return nil, nil, err
		case !errors.Is(err, track.ErrNothing):
			b.say("no way back: %v", err)
			if b.hasGood() { // else it is the one that was just asked for
				failed.NoWay = err
			}
		}
		if b.afterKexec() && time.Since(cutOff) > b.limits.only {
			return nil, nil, fmt.Errorf("%w: nothing was reached for %s under the arguments of a kexec, which may be why", errStartOver, b.limits.only)
		}
		if over := b.overdue(failed.Err); over != nil {
			return nil, nil, over
		}
		failed.Rescue = b.letIn(ctx)
		b.show(failed)
		if tries >= hintTries {
			b.hint(ctx, why)
		}
		time.Sleep(pause)
	}
}

// reached reports whether an error of ask is the answer of somebody.
func reached(err error) bool {
	sync, _ := track.Describe(err)
	return sync != spec.SyncUnreachable || errors.Is(err, oci.ErrNotFound)
}

// fallBack prepares the best of what was good before: what is whole on the disk,
// and only where nothing is, what the registry can complete.
func (b *boot) fallBack(ctx context.Context) (*track.Found, *spec.Layer, error) {
	f := b.follower()
	if s, err := b.folder.Load(); err == nil && f.Identity.Node == "" {
		f.Identity.Node = s.DHCPName
	}
	good, err := f.Good()
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, found := range good {
		whole := *found
		whole.Unchanged = b.source == nil // else its kernel may still be fetched
		layer, err := b.prepare(ctx, nil, &whole)
		if err == nil || errors.Is(err, errStartOver) {
			b.passedOver(errs)
			return found, layer, err
		}
		errs = append(errs, fmt.Errorf("generation %d: %w", found.Generation.Generation, err))
	}
	if b.source == nil {
		return nil, nil, errors.Join(errs...)
	}
	errs = nil
	for _, found := range good {
		layer, err := b.prepareInTime(ctx, b.source, found)
		if err == nil || errors.Is(err, errStartOver) {
			b.passedOver(errs)
			return found, layer, err
		}
		errs = append(errs, fmt.Errorf("generation %d: %w", found.Generation.Generation, err))
	}
	return nil, nil, errors.Join(errs...)
}

// passedOver says what ran well and cannot run any more, where something older can: the
// disk has lost it.
func (b *boot) passedOver(errs []error) {
	for _, err := range errs {
		b.trouble("what ran well before cannot run: %v", err)
	}
}

// notBegun is why a newer generation is not begun.
type notBegun struct {
	generation uint64
	step       decide.Step
}

func (n notBegun) Error() string { return fmt.Sprintf("generation %d: %s", n.generation, n.step.Why) }

// facts are what decides whether the loader enters what the registry has.
func (b *boot) facts(found *track.Found) *decide.Facts {
	f := &decide.Facts{Event: decide.Boot, Offer: decide.Offer{Held: found.Held, Unchanged: found.Unchanged,
		Generation: found.Generation, Attempts: b.begun(found.Generation), Uncounted: b.readOnly != nil}}
	if s, err := b.folder.Load(); err == nil { // else nothing is known to fall back on
		f.Best = s.Best()
	}
	return f
}

// begin counts a boot that the service will prove, or nobody: before anything of
// it is entered, and once, also when that takes a kexec. A disk that cannot be
// written to does not stop the boot; then nothing ends it, since nothing would count
// how often. What a diskless node counts is gone with the boot: it has nothing better
// to run, and asks for something newer each time.
func (b *boot) begin() {
	s, err := b.folder.Load()
	if err == nil && s.Staged != nil && s.Staged.Pair(b.record.Generation) {
		b.unproven = true
		if b.countedFor(s.Staged.Overlay) {
			return
		}
		s.Staged.Attempts++
		err = b.folder.Save(s)
	}
	if err != nil {
		b.unproven = false
		b.say("this boot is not counted: %v", err)
	}
}

// begun returns how many boots of a generation were begun before this one. Behind its
// kexec, this one is counted already.
func (b *boot) begun(g state.Generation) int {
	if b.countedFor(g.Overlay) {
		return g.Attempts - 1
	}
	return g.Attempts
}

// countedFor reports whether the loader before this kexec counted this boot for an
// overlay. One that entered the last good generation, because another had been begun
// too often, counted for none: that other one is not to be begun behind the kexec.
func (b *boot) countedFor(overlay string) bool {
	if !b.afterKexec() {
		return false
	}
	counted, said := kexec.CountedFor(b.words)
	return counted == overlay || !said // loaders before this one counted whatever they entered
}

// counted is what the loader behind a kexec is told of the count.
func (b *boot) counted() string {
	if !b.unproven {
		return kexec.Counted
	}
	return kexec.Counted + b.record.Generation.Overlay
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

// answer judges what the source has for this node.
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
	step := decide.Next(b.facts(found))
	switch g := found.Generation; step.Act {
	case decide.EnterOld:
		good, err := b.follower().Good()
		if err != nil {
			return nil, err
		}
		return good[0], nil
	case decide.FallBack:
		return nil, notBegun{g.Generation, step}
	}
	b.say("overlay of node %s, generation %d, layer %s", found.Overlay.Node, found.Generation.Generation, found.Generation.Layer)
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
