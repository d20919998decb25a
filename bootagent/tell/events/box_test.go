// SPDX-License-Identifier: Apache-2.0

package events

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// What is tried and fails again and again is noted once a boot; of a refusal, once a code.
func TestWhatComesAgainIsNotedOnceABoot(t *testing.T) {
	box := blackbox.At(filepath.Join(t.TempDir(), blackbox.Name))
	g := state.Generation{Generation: 3, Epoch: 1, Overlay: "sha256:a", Layer: "sha256:b"}
	for _, c := range []struct {
		boot string
		e    spec.Event
		want int
	}{
		{"one", spec.Event{Event: spec.EventTakenBack, Why: "no room"}, 1},
		{"one", spec.Event{Event: spec.EventTakenBack, Why: "no room"}, 1},
		{"one", spec.Event{Event: spec.EventTakenBack, Why: "no such file"}, 2},
		{"two", spec.Event{Event: spec.EventTakenBack, Why: "no room"}, 3},
		{"two", spec.Event{Event: spec.EventRefused, Code: "replay", Why: "at noon"}, 4},
		{"two", spec.Event{Event: spec.EventRefused, Code: "replay", Why: "a minute later"}, 4},
		{"two", spec.Event{Event: spec.EventRefused, Code: "expired", Why: "a minute later"}, 5},
	} {
		if err := Note(box, c.boot, g, c.e); err != nil {
			t.Fatal(err)
		}
		events, err := box.Events()
		if err != nil || len(events) != c.want {
			t.Fatalf("%d events, %v after %+v; want %d", len(events), err, c, c.want)
		}
		if e := events[0]; e.Generation != 3 || e.Epoch != 1 || e.Overlay != g.Overlay || e.Layer != g.Layer || e.Boot != "one" || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
	}
}

// The deadline of a new generation is noted without the node's lock: the agent may be
// what hangs.
func TestADeadlineIsInTheBlackBox(t *testing.T) {
	root := t.TempDir()
	folder, err := state.Open(root + paths.State)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root+paths.Run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := state.SaveBoot(root+paths.RunBoot, &state.Boot{RootID: "root", Generation: state.Generation{Generation: 2, Overlay: "sha256:a"}}); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(root + paths.RunLock)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // the test is over
	if err := Deadline(t.Context(), root, "boot"); err != nil {
		t.Fatal(err)
	}
	events, err := blackbox.At(folder.Path(blackbox.Name)).Events()
	if err != nil || len(events) != 1 || events[0].Event != spec.EventDeadline || events[0].Generation != 2 || events[0].Boot != "boot" || events[0].Why != "it did not prove itself in time" {
		t.Errorf("%+v, %v", events, err)
	}
}
