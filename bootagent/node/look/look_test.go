// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// machine is a node's clock, log and reports of itself.
type machine struct {
	noted   []string
	corrupt []string // images
}

func (*machine) Up() time.Duration                          { return time.Minute }
func (*machine) Now() time.Time                             { return time.Unix(1000, 0) }
func (*machine) Synchronised() bool                         { return true }
func (*machine) Record(string, ...events.Field)             {}
func (*machine) RecordChanges(items.Result, uint64, string) {}
func (*machine) Say(string, ...any)                         {}
func (m *machine) Note(g state.Generation, _ error, e spec.Event) {
	m.noted = append(m.noted, fmt.Sprintf("%s %s of %d: %s", e.Event, e.Key, g.Generation, e.Why))
}
func (*machine) Damage() error                { return nil }
func (*machine) Recipient() (string, bool)    { return "", false }
func (*machine) Listen(string) error          { return nil }
func (m *machine) Corrupt() ([]string, error) { return m.corrupt, nil }

// looking returns what looks at a node with a state and the record of its boot.
func looking(t *testing.T, s *state.State, b *record.Boot) (*Look, *machine) {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err == nil {
		s.Tracking = spec.Following
		err = folder.Save(s)
	}
	dir, m := t.TempDir(), new(machine)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, paths.Run), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	o := record.New(folder, b, filepath.Join(t.TempDir(), "boot.json"))
	ef := &effect.Effect{Unbound: errors.New("no key is trusted"), Last: func() spec.Status { return spec.Status{} }, Clock: m,
		Table: effect.Table{Dir: dir, Alone: true, Owner: o, Folder: folder, Log: m}}
	ef.Scopes.Root, ef.Scopes.Kernel = "r", "k"
	return &Look{Owner: o, Effect: ef, Node: m,
		Destination: &destination.Destination{Dir: dir, Owner: o, Folder: folder, Tracker: new(track.Tracker), Effect: ef, Log: m,
			Store: func() (*layers.Store, error) { return layers.OpenStore(store) }}}, m
}

func gen(n uint64) state.Generation {
	return state.Generation{Generation: n, Epoch: 1, Overlay: fmt.Sprint(n), Layer: "l"}
}

func (l *Look) text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(l.Effect.Path(name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// An image of which the kernel met a wrong block is noted once, and the next boot reads it; the others it
// need not read. A look beside another process leaves the note out.
func TestImagesThatTheKernelFoundWrong(t *testing.T) {
	b := &record.Boot{Images: record.Images{WhenRead: []string{"a", "b"}},
		Layer: spec.Layer{Images: []spec.Image{{Name: "base", Blob: spec.Blob{Digest: "b"}}}}}
	l, m := looking(t, &state.State{}, b)
	m.corrupt = []string{"b"}
	l.Effect.Alone = false
	l.noteImages(gen(1))
	if live := l.Owner.Boot().Live; live.Corrupt != nil || live.Sound != nil || m.noted != nil {
		t.Fatalf("beside another process: %+v, %q", live, m.noted)
	}
	l.Effect.Alone = true
	for range 2 {
		l.noteImages(gen(1))
	}
	if live := l.Owner.Boot().Live; !slices.Equal(live.Corrupt, []string{"b"}) || !slices.Equal(live.Sound, []string{"a"}) {
		t.Errorf("%+v", live)
	}
	if len(m.noted) != 1 || !strings.HasPrefix(m.noted[0], "corrupt base of 1: image base (b): ") {
		t.Errorf("%q", m.noted)
	}
	store, err := l.Destination.Store()
	if err != nil {
		t.Fatal(err)
	}
	if sound, err := store.TakeSound(); err != nil || len(sound) != 1 || !sound["a"] {
		t.Errorf("the next boot does not read %v, %v", sound, err)
	}
}

// The file by which others learn that a reboot is waited for has the lines of others, too, and
// goes with the last one.
func TestOthersWaitForARebootToo(t *testing.T) {
	staged := gen(2)
	l, _ := looking(t, &state.State{Staged: &staged}, &record.Boot{})
	const theirs, ours = "linux-image-amd64\n", "caisson: generation 2\n"
	for _, step := range []struct {
		name, has string // before
		waits     bool
		want      string
	}{
		{"one waits", "", true, ours},
		{"beside others", theirs, true, theirs + ours},
		{"again", theirs + ours, true, theirs + ours},
		{"an older one", "caisson: generation 1: x\n" + theirs, true, theirs + ours},
		{"none waits any more", theirs + ours, false, theirs},
		{"and nothing else", ours, false, ""},
	} {
		if err := os.MkdirAll(filepath.Dir(l.Effect.Path(paths.RebootReasons)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.Effect.Path(paths.RebootReasons), []byte(step.has), 0o644); err != nil {
			t.Fatal(err)
		}
		err := l.Owner.Commit(record.Change{State: func(s *state.State) {
			if s.Staged = nil; step.waits {
				s.Staged = &staged
			}
		}})
		if err == nil {
			err = l.MarkReboot()
		}
		if got := l.text(t, paths.RebootReasons); err != nil || got != step.want {
			t.Errorf("%s: %q, %v; want %q", step.name, got, err, step.want)
		}
		if (l.text(t, paths.RebootRequired) != "") != (step.want != "") {
			t.Errorf("%s: the mark is %q", step.name, l.text(t, paths.RebootRequired))
		}
	}
}

// Metrics leave no file behind where they were written before.
func TestMetricsAreMoved(t *testing.T) {
	l, _ := looking(t, &state.State{MetricsFile: "/old.prom"}, &record.Boot{})
	for _, name := range []string{"/old.prom", "/other.prom"} {
		if err := os.WriteFile(l.Effect.Path(name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := l.MoveMetrics("/new.prom"); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.Owner.State()
	if err != nil || s.MetricsFile != "/new.prom" || l.text(t, "/old.prom") != "" || l.text(t, "/other.prom") != "x" {
		t.Errorf("%+v, %v", s, err)
	}
}

// That a boot came up is noted once, with the worst that is said of it.
func TestABootThatCameUpIsNotedOnce(t *testing.T) {
	l, m := looking(t, &state.State{}, &record.Boot{})
	for range 2 {
		l.noteUp(&spec.Status{Health: spec.HealthOK}, &track.Found{Generation: gen(3)})
	}
	if want := []string{"up  of 3: health ok"}; !slices.Equal(m.noted, want) || !l.Owner.Boot().Live.Up {
		t.Errorf("%q, want %q", m.noted, want)
	}
}

// The code of a rescue is shown to root who asks, and is in no file that others may read.
func TestTheCodeIsRoots(t *testing.T) {
	l, _ := looking(t, &state.State{}, &record.Boot{})
	if s, err := l.rescue(true); s != nil || err != nil {
		t.Errorf("where no rescue key counts and nobody was let in: %+v, %v", s, err)
	}
	book, err := rescue.Begin(l.Effect.Dir, "k")
	if err == nil {
		book.Times = 1
		err = book.Save()
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err := l.rescue(true); err != nil || s == nil || s.Code != "" {
		t.Errorf("where no rescue key counts: %+v, %v", s, err)
	}
	shown := &spec.Status{Rescue: &spec.RescueStatus{Code: book.Code}}
	if err := l.Keep(shown); err != nil {
		t.Fatal(err)
	}
	if kept := l.text(t, paths.RunStatus); kept == "" || strings.Contains(kept, book.Code) || shown.Rescue.Code == "" {
		t.Errorf("kept is %s", kept)
	}
}

// What tells of changes is what this process hears of, or what the service heard of at last.
func TestHintsOfTheService(t *testing.T) {
	l, _ := looking(t, &state.State{}, &record.Boot{})
	l.Effect.Last = func() spec.Status {
		return spec.Status{Items: []spec.ItemStatus{{Name: "mount", Hints: []string{"mountinfo"}}}}
	}
	if got := l.hints(nil); !slices.Equal(got["mount"], []string{"mountinfo"}) {
		t.Errorf("of the service: %v", got)
	}
	l.Hints = func(kind string) []string { return []string{kind + " here"} }
	if got := l.hints([]spec.ItemStatus{{Name: "sysctl"}}); len(got) != 1 || !slices.Equal(got["sysctl"], []string{"sysctl here"}) {
		t.Errorf("of this process: %v", got)
	}
}

// timed are units by when they began and were there, in seconds.
type timed map[string][2]time.Duration

func (u timed) Times(_ context.Context, unit string) (began, there time.Duration, err error) {
	return u[unit][0] * time.Second, u[unit][1] * time.Second, nil
}

func TestBrokenOrders(t *testing.T) {
	l := &Look{Units: timed{
		"srv-a\\x2db.mount": {9, 10}, "early.service": {4, 5}, "late.service": {11, 12}, "slow.service": {8, 0},
		"behind.service": {8, 11}, "fine.service": {8, 10}}}
	got := l.brokenOrders([]spec.Mount{
		{Target: "/srv/a-b", Before: []string{"early.service", "late.service", "never.service"},
			After: []string{"slow.service", "behind.service", "fine.service", "never.service"}},
		{Target: "/srv/none", Before: []string{"early.service"}, After: []string{"behind.service"}},
	})
	want := []string{"early.service began 6s before /srv/a-b was mounted",
		"slow.service was not there when /srv/a-b was mounted",
		"behind.service was not there when /srv/a-b was mounted"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Over a soft-reboot systemd keeps when units began in the root before.
func TestOrdersOfTheRootBefore(t *testing.T) {
	l := &Look{Units: timed{"umount.target": {20, 21}, "srv-a.mount": {30, 31}, "waits.service": {4, 5}, "early.service": {25, 26}, "srv-gone.mount": {9, 10}}}
	got := l.brokenOrders([]spec.Mount{{Target: "/srv/a", Before: []string{"waits.service", "early.service"}},
		{Target: "/srv/gone", Before: []string{"waits.service"}}})
	if want := []string{"early.service began 6s before /srv/a was mounted"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
