// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/spec"
)

// mostAlike is how many events of one kind a boot notes: a node that asks for days must
// not write over what was before.
const mostAlike = 4

// note puts an event into the black box, as soon as there is one.
func (b *boot) note(e spec.Event) {
	alike := 0
	for _, n := range b.noted {
		if n.Event == e.Event {
			alike++
		}
		if alike == mostAlike || n.Event == e.Event && n.Why == e.Why && n.Generation == e.Generation {
			return
		}
	}
	e.Time, e.Boot = time.Now().UTC().Truncate(time.Second), bootID(b.proc)
	b.noted = append(b.noted, e)
	if b.folder != nil {
		b.keep(e)
	}
}

func (b *boot) keep(e spec.Event) {
	if err := b.box().Add(e); err != nil {
		b.say("%v", err)
	}
}

func (b *boot) box() blackbox.Box { return blackbox.At(b.folder.Path(blackbox.Name)) }

// lastWord notes why the loader ends, with what the console has. The disk may be why:
// it is not waited for.
func (b *boot) lastWord(why string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.note(about(b.record.Generation, spec.Event{Event: spec.EventGaveUp, Transition: b.transition, Why: why, Did: "started the machine over", Console: blackbox.Console(kmsg)}))
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
	}
}

// about says of which generation an event is.
func about(g state.Generation, e spec.Event) spec.Event {
	e.Generation, e.Epoch, e.Overlay, e.Layer = g.Generation, g.Epoch, g.Overlay, g.Layer
	return e
}

// lookBack notes how the boot before ended where that one could not, and what was noted
// before there was a box. A loader behind its kexec goes on with the boot of the first.
func (b *boot) lookBack(pstore string) {
	before, err := b.box().Events()
	if err != nil {
		b.say("%v", err)
	}
	var begun *spec.Event
	if n := len(before); n > 0 && b.isOpen(before[n-1]) {
		begun = &before[n-1]
	}
	for _, d := range blackbox.Dumps(pstore) {
		e := spec.Event{Event: spec.EventCrashed, Why: d.Why(), Did: "the machine started over", Console: d.Console}
		if begun != nil {
			e.Of, e.Generation, e.Epoch, e.Overlay, e.Layer = begun.Boot, begun.Generation, begun.Epoch, begun.Overlay, begun.Layer
		}
		e.Time, e.Boot = time.Now().UTC().Truncate(time.Second), bootID(b.proc)
		if err := b.box().Add(e); err != nil {
			b.say("%v", err)
		} else if b.lasting() {
			if err := d.Forget(); err != nil {
				b.say("%v", err)
			}
		}
		begun = nil
	}
	if begun != nil {
		b.keep(spec.Event{Time: time.Now().UTC().Truncate(time.Second), Boot: bootID(b.proc), Of: begun.Boot, Event: spec.EventLost,
			Generation: begun.Generation, Epoch: begun.Epoch, Overlay: begun.Overlay, Layer: begun.Layer,
			Why: "it ended before its agent had applied it, and left no record: power, a reset, or a panic that nothing kept", Did: "it counts as an attempt"})
	}
	for _, e := range b.noted {
		b.keep(e)
	}
}

// isOpen reports whether the last event of the box is of a boot that nobody has heard of
// since. What became current came up, even if no agent noted it: an agent of an earlier
// release notes nothing.
func (b *boot) isOpen(last spec.Event) bool {
	switch {
	case last.Boot == bootID(b.proc):
		return false
	case last.Event == spec.EventKexec && b.afterKexec():
		return false
	case last.Event != spec.EventKexec && last.Event != spec.EventEntered:
		return false
	}
	s, err := b.folder.Load()
	return err == nil && (s.Current == nil || s.Current.Overlay != last.Overlay)
}

func bootID(proc string) string {
	id, err := os.ReadFile(proc + "/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
