// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// mostAlike is how many events of one kind a boot notes: a node that asks for days must
// not write over what was before.
const mostAlike = 4

// notes holds what this boot has noted, in the black box or on the way there.
type notes struct {
	say     say
	machine *machine
	disk    *stateDisk

	noted      []spec.Event
	transition string           // name of the decision that this boot goes by, see package decide
	of         state.Generation // that this boot was about, at last
}

// note puts an event into the black box, as soon as there is one.
func (n *notes) note(e spec.Event) {
	alike := 0
	for _, was := range n.noted {
		if was.Event == e.Event {
			alike++
		}
		if alike == mostAlike || was.Event == e.Event && was.Why == e.Why && was.Generation == e.Generation {
			return
		}
	}
	e = n.now(e)
	n.noted = append(n.noted, e)
	if n.disk.folder != nil {
		n.keep(e)
	}
}

func (n *notes) keep(e spec.Event) {
	fault.Say(n.say, n.box().Add(e))
}

func (n *notes) box() events.Box { return events.BoxAt(n.disk.folder.Path(events.BoxName)) }

// lastWord notes why the loader ends, with what the console has. The disk may be why:
// it is not waited for.
func (n *notes) lastWord(why string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.note(about(n.of, spec.Event{Event: spec.EventGaveUp, Transition: n.transition, Why: why,
			Did: "started the machine over", Console: events.Console(screen.Log)}))
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

// after says of which boot an event is that nobody has heard of since; nil is of none.
func after(begun *spec.Event, e spec.Event) spec.Event {
	if begun != nil {
		e.Of, e.Generation, e.Epoch, e.Overlay, e.Layer = begun.Boot, begun.Generation, begun.Epoch, begun.Overlay, begun.Layer
	}
	return e
}

func (n *notes) now(e spec.Event) spec.Event {
	e.Time, e.Boot = time.Now().UTC().Truncate(time.Second), bootID(n.machine.proc)
	return e
}

// lookBack notes how the boot before ended where that one could not, and what was noted
// before there was a box. A loader behind its kexec goes on with the boot of the first.
func (n *notes) lookBack(pstore string) {
	before, err := n.box().Events()
	fault.Say(n.say, err)
	var begun *spec.Event
	if last := len(before) - 1; last >= 0 && n.isOpen(before[last]) {
		begun = &before[last]
	}
	for _, d := range events.Dumps(pstore) {
		e := spec.Event{Event: spec.EventCrashed, Why: d.Why(), Did: "the machine started over", Console: d.Console}
		if err := n.box().Add(n.now(after(begun, e))); err != nil {
			n.say("%v", err)
		} else if n.disk.lasting() {
			fault.Say(n.say, d.Forget())
		}
		begun = nil
	}
	if begun != nil {
		n.keep(n.now(after(begun, spec.Event{Event: spec.EventLost, Did: "it counts as an attempt",
			Why: "it ended before its agent had applied it, and left no record: power, a reset, or a panic that nothing kept"})))
	}
	for _, e := range n.noted {
		n.keep(e)
	}
}

// isOpen reports whether the last event of the box is of a boot that nobody has heard of
// since. What became current came up, even if no agent noted it: an agent of an earlier
// release notes nothing.
func (n *notes) isOpen(last spec.Event) bool {
	switch {
	case last.Boot == bootID(n.machine.proc):
		return false
	case last.Event == spec.EventKexec && n.machine.afterKexec():
		return false
	case last.Event != spec.EventKexec && last.Event != spec.EventEntered:
		return false
	}
	s, err := n.disk.folder.Load()
	return err == nil && (s.Current == nil || s.Current.Overlay != last.Overlay)
}

func bootID(proc string) string {
	id, err := os.ReadFile(proc + "/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// attempt is the boot of a generation that nobody has proved: it is counted, and has to prove it.
type attempt struct {
	say      say
	machine  *machine
	disk     *stateDisk
	unproven bool // and is counted
}

// begin counts a boot that the service will prove, or nobody: before anything of
// it is entered, and once, also when that takes a kexec. A disk that cannot be
// written to does not stop the boot; then nothing ends it, since nothing would count
// how often. What a diskless node counts is gone with the boot: it has nothing better
// to run, and asks for something newer each time.
func (a *attempt) begin(g state.Generation, heard bool) {
	s, err := a.disk.folder.Load()
	if err == nil && heard && s.Retest(g) {
		err = a.disk.folder.Save(s)
	}
	if err == nil && s.Staged != nil && s.Staged.Pair(g) {
		a.unproven = true
		if a.countedFor(s.Staged.Overlay) {
			return
		}
		s.Staged.Attempts++
		err = a.disk.folder.Save(s)
	}
	if err != nil {
		a.unproven = false
		a.say("this boot is not counted: %v", err)
	}
}

// takeBack counts a boot no more whose kernel was not entered.
func (a *attempt) takeBack() {
	if !a.unproven {
		return
	}
	a.unproven = false
	s, err := a.disk.folder.Load()
	if err == nil && s.Staged != nil {
		s.Staged.Attempts--
		err = a.disk.folder.Save(s)
	}
	fault.Say(a.say, fault.In(err, "this boot stays counted"))
}

// begun returns how many boots of a generation were begun before this one. Behind its
// kexec, this one is counted already.
func (a *attempt) begun(g state.Generation) int {
	if a.countedFor(g.Overlay) {
		return g.Attempts - 1
	}
	return g.Attempts
}

// countedFor reports whether the loader before this kexec counted this boot for an
// overlay. One that entered the last good generation, because another had been begun
// too often, counted for none: that other one is not to be begun behind the kexec.
func (a *attempt) countedFor(overlay string) bool {
	if !a.machine.afterKexec() {
		return false
	}
	counted, said := kernel.CountedFor(a.machine.words)
	return counted == overlay || !said // loaders before this one counted whatever they entered
}

// counted tells a loader started by kexec how often this generation was begun.
func (a *attempt) counted(overlay string) string {
	if !a.unproven {
		return kernel.KexecCounted
	}
	return kernel.KexecCounted + overlay
}
