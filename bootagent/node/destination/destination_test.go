// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// machine notes how it was started over, and what is written down.
type machine struct {
	did []string
	err error
}

func (*machine) Up() time.Duration { return time.Minute }
func (m *machine) Reboot(context.Context) error {
	m.did = append(m.did, "reboot")
	return m.err
}
func (m *machine) SoftReboot(_ context.Context, replug bool) error {
	m.did = append(m.did, "soft-reboot")
	return m.err
}
func (*machine) Record(string, ...events.Field)             {}
func (*machine) RecordChanges(items.Result, uint64, string) {}
func (*machine) Note(state.Generation, error, spec.Event)   {}
func (m *machine) Say(format string, args ...any) {
	m.did = append(m.did, fmt.Sprintf(format, args...))
}

func going(t *testing.T, b *record.Boot) (*Destination, *machine) {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err == nil {
		err = folder.Save(&state.State{Tracking: spec.Following})
	}
	dir, m := t.TempDir(), new(machine)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, paths.Run), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Destination{Dir: dir, Owner: record.New(folder, b, filepath.Join(t.TempDir(), "boot.json")), Folder: folder, Machine: m, Log: m}, m
}

// A machine that no soft-reboot is known for is rebooted, and says why.
func TestReboot(t *testing.T) {
	fault := errors.New("systemd refuses")
	for _, err := range []error{nil, fault} {
		d, m := going(t, &record.Boot{Mode: spec.ModeAttached})
		m.err = err
		class, why, got := d.Reboot(t.Context())
		if class != spec.ClassReboot || !errors.Is(got, err) || !slices.Equal(m.did, []string{"a reboot: " + why, "reboot"}) ||
			d.SayWay("it waits") != class+": "+why+"; it waits" {
			t.Errorf("%s, %s, %v: %q", class, why, got, m.did)
		}
	}
}

// Where the next boot runs what runs, as when what waited was rejected, nothing is said of the way.
func TestNoWay(t *testing.T) {
	d, _ := going(t, &record.Boot{Mode: spec.ModeNetboot})
	d.Tracker = new(track.Tracker)
	if said := d.SayMove(new(track.Found)); said != "" {
		t.Errorf("it says %q", said)
	}
}

// What a boot runs now is not rejected for its own attempts; nobody who is trusted offers nothing.
func TestRejected(t *testing.T) {
	g := state.Generation{Generation: 2, Overlay: "o", Layer: "l", Attempts: state.MaxAttempts}
	for _, runs := range []bool{false, true} {
		b := &record.Boot{Mode: "netboot"}
		if runs {
			b.Generation = g
		}
		d, _ := going(t, b)
		if why := d.Rejected(g); (why == "") != runs || d.Candidate(&state.State{Staged: &g}) != nil {
			t.Errorf("%v: %q", runs, why)
		}
	}
	failed := state.Generation{Generation: 2, Failed: "x", Again: time.Now().Unix() + 60}
	if d, _ := going(t, new(record.Boot)); d.Rejected(failed) != "x" || !strings.Contains(RejectedText(failed, "x"), "it is tried again at ") {
		t.Error(d.Rejected(failed))
	}
}

// What the registry had first in a boot is kept, whatever it has later.
func TestNoteHad(t *testing.T) {
	d, _ := going(t, new(record.Boot))
	found := func(layer string) *track.Found {
		f := new(track.Found)
		f.Overlay.Layer = layer
		return f
	}
	want, err := spec.RootID(&found("a").Overlay, "a")
	if err := errors.Join(err, d.NoteHad(found("a")), d.NoteHad(found("b"))); err != nil || d.Owner.Boot().Live.Had != want {
		t.Errorf("%q, want %q, %v", d.Owner.Boot().Live.Had, want, err)
	}
}

// Bytes of one layer add up over its attempts.
func TestBytes(t *testing.T) {
	d, _ := going(t, new(record.Boot))
	for _, b := range []spec.Bytes{{Fetched: 3, Had: 1}, {}, {Fetched: 4}} {
		if err := d.noteBytes(t.Context(), "a", b); err != nil {
			t.Fatal(err)
		}
	}
	if b := d.BytesOf("a"); b == nil || b.Fetched != 7 || b.Had != 1 || d.BytesOf("b") != nil {
		t.Errorf("%+v", b)
	}
}

// Of two who fetch a layer neither forgets what the other one has brought.
func TestBytesOfSeveral(t *testing.T) {
	d, _ := going(t, new(record.Boot))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := d.noteBytes(t.Context(), "a", spec.Bytes{Fetched: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if b := d.BytesOf("a"); b == nil || b.Fetched != 160 {
		t.Errorf("%+v", b)
	}
}

// Of what waits for a reboot the first line that is not ours counts.
func TestOthersWait(t *testing.T) {
	d, _ := going(t, new(record.Boot))
	for text, want := range map[string]string{"": "", RebootMark + "generation 2\n": "",
		RebootMark + "x\nlinux-image-6.1\nother\n": "linux-image-6.1"} {
		if err := os.MkdirAll(filepath.Dir(d.path(paths.RebootReasons)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.path(paths.RebootReasons), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := d.othersWait(); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
