// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// nextBoot starts the machine over: the loader knows nothing but what is on its disk.
func (p *published) nextBoot(id string, pstore string) {
	p.t.Helper()
	p.machine.proc = p.t.TempDir()
	if err := os.MkdirAll(p.machine.proc+"/sys/kernel/random", 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.machine.proc+"/sys/kernel/random/boot_id", []byte(id+"\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	p.notes.noted, p.attempt.unproven, p.disk.device = nil, false, "/dev/vda1"
	p.notes.lookBack(pstore)
}

func (p *published) noteEntered() {
	p.notes.note(about(p.notes.of, spec.Event{Event: spec.EventEntered}))
}

func (p *published) blackBox() (events []spec.Event, names []string) {
	p.t.Helper()
	events, err := p.notes.box().Events()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range events {
		names = append(names, e.Event)
	}
	return events, names
}

// A bad generation takes the node down three times and the good one comes back: the
// black box says what was tried each time, and why it went back.
func TestTheBlackBoxOutlivesARollBack(t *testing.T) {
	p := publish(t)
	p.nextBoot("b1", "")
	p.overlay(1, p.layer("good").Overlay.Layer)
	p.boots()
	p.noteEntered()
	p.comesUp()
	p.overlay(2, p.layer("bad").Overlay.Layer)
	for _, id := range []string{"b2", "b3", "b4"} {
		p.nextBoot(id, "")
		p.boots()
		p.noteEntered()
	}
	p.nextBoot("b5", "")
	if got := p.boots(); got != 1 {
		t.Fatalf("generation %d runs", got)
	}
	events, names := p.blackBox()
	want := []string{"entered", "entered", "lost", "entered", "lost", "entered", "lost", "asked", "fell-back"}
	if !slices.Equal(names, want) {
		t.Fatalf("%q, want %q", names, want)
	}
	lost, back := events[6], events[8]
	if lost.Of != "b4" || lost.Boot != "b5" || lost.Generation != 2 || lost.Layer == "" {
		t.Errorf("%+v", lost)
	}
	if back.Generation != 1 || !strings.Contains(back.Why, "begun 3 times") {
		t.Errorf("%+v", back)
	}
}

// What a dead kernel left goes into the box, and leaves its room to the next.
func TestADeadKernelIsNoted(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("bad").Overlay.Layer)
	p.nextBoot("b1", "")
	p.boots()
	p.noteEntered()
	pstore := t.TempDir()
	dump := "Panic#1 Part1\n<6>[    1.0] caisson: entering the layer\n<0>[    1.1] Kernel panic - not syncing: no init\n"
	if err := os.WriteFile(filepath.Join(pstore, "dmesg-ramoops-0"), []byte(dump), 0o600); err != nil {
		t.Fatal(err)
	}
	p.nextBoot("b2", pstore)
	events, names := p.blackBox()
	if !slices.Equal(names, []string{"entered", "crashed"}) || events[1].Generation != 1 || events[1].Of != "b1" ||
		events[1].Why != "Panic: Kernel panic - not syncing: no init" || len(events[1].Console) != 2 {
		t.Errorf("%+v", events)
	}
	if left, err := os.ReadDir(pstore); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// The loader behind a kexec goes on with the boot of the first one; one behind the
// firmware knows that the kernel before it did not come far.
func TestAKexecIsOneBoot(t *testing.T) {
	for behind, want := range map[bool][]string{true: {"kexec"}, false: {"kexec", "lost"}} {
		p := publish(t)
		p.overlay(1, p.layer("l").Overlay.Layer)
		p.nextBoot("b1", "")
		p.boots()
		p.notes.note(about(p.notes.of, spec.Event{Event: spec.EventKexec}))
		if behind {
			p.machine.words = []string{spec.KexecMarker}
		}
		p.nextBoot("b2", "")
		if _, names := p.blackBox(); !slices.Equal(names, want) {
			t.Errorf("behind a kexec %v: %q, want %q", behind, names, want)
		}
	}
}

// A node that asks for days keeps what was in its box before, and an error says what
// the kernel said.
func TestARetryLoopLeavesTheBoxAlone(t *testing.T) {
	p := publish(t)
	p.nextBoot("b1", "")
	for n := range 1000 {
		err := &os.PathError{Op: "dial", Path: strings.Repeat("x", n), Err: syscall.ECONNREFUSED}
		p.notes.note(events.Blame(spec.Event{Event: spec.EventAsked}, errors.Join(err)))
	}
	if events, names := p.blackBox(); len(names) != mostAlike || events[0].Errno != "ECONNREFUSED" {
		t.Errorf("%q, %+v", names, events)
	}
}

// What was noted before there was a disk is there when it appears.
func TestWhatWasNotedBeforeTheDisk(t *testing.T) {
	p := publish(t)
	folder := p.disk.folder
	p.disk.folder = nil
	p.notes.note(spec.Event{Event: spec.EventAsked, Why: "no address"})
	p.disk.folder = folder
	p.notes.lookBack("")
	if _, names := p.blackBox(); !slices.Equal(names, []string{"asked"}) {
		t.Errorf("%q", names)
	}
}
