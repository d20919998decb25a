// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/traces"
)

// A node decides what the model of package decide decides, in the same order, when the
// same happens to it.
func TestWhatANodeDecides(t *testing.T) {
	m := newMachine(t)
	m.enrolled()
	var names []string
	gathered := traces.Into()
	o := session.Options{Root: m.root, Say: t.Logf, Decided: func(f *decide.Facts, s decide.Step) {
		if names = append(names, s.Name); gathered != nil {
			gathered(f, s)
		}
		if again := decide.Next(f); again != s {
			t.Errorf("%+v, and %+v the second time", s, again)
		}
	}}
	act := func(do func(*Node) error) {
		t.Helper()
		n, err := Open(t.Context(), o, m.bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() // the test looks at names
		if err := do(n); err != nil {
			t.Fatal(err)
		}
	}
	apply := func() { act(func(n *Node) error { _, err := n.cycle.Apply(t.Context()); return err }) }
	sync := func() { act(func(n *Node) error { _, err := n.cycle.Sync(t.Context()); return err }) }
	for _, row := range []struct {
		when string
		do   func()
		want string
	}{
		{"it comes up", func() { m.publish(1, layerNamed("a"), "10"); m.boot(); apply() }, "settled come-up no-trial proved"},
		{"a look", apply, "settled keep not-offered"},
		{"a question", sync, "settled unchanged keep not-offered"},
		{"a change", func() { m.publishGated(2, layer("a"), "20", 0); sync() }, "settled change no-trial made soak"},
		{"a look meanwhile", apply, "settled keep soak-goes-on"},
		{"it fails", func() {
			if _, _, err := Judge(t.Context(), o, nil); err != nil {
				t.Fatal(err)
			}
		}, "settled failed-back-live"},
		{"it is asked for again", sync, "settled rejected keep not-offered"},
		{"somebody pauses the node", func() { act(func(n *Node) error { return n.Pause("", 0) }); apply() }, "settled paused"},
		{"a change meanwhile", func() { m.publish(3, layerNamed("a"), "30"); sync() }, "settled for-resume"},
		{"and resumes it", func() { act(func(n *Node) error { return n.Resume() }); sync() }, "settled change no-trial made proved"},
		{"another layer", func() { m.publish(4, layerNamed("b"), "40"); sync() }, "settled for-a-boot"},
	} {
		names = nil
		row.do()
		if got := strings.Join(names, " "); got != row.want {
			t.Errorf("%s: %s, want %s", row.when, got, row.want)
		}
	}
	if s := m.state(); s.Current.Generation != 3 {
		t.Errorf("it ends at %+v", s.Current)
	}
	b, err := record.Load(m.root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"come-up": 1, "no-trial": 3, "proved": 2, "change": 2, "made": 2, "soak": 1, "failed-back-live": 1}
	if got := b.Live.Counts.Transitions; !maps.Equal(got, want) {
		t.Errorf("transitions that changed something: %v, want %v", got, want)
	}
}

// What nobody confirmed is undone, and the node says that it is behind, also before it has
// asked the registry again.
func TestWhatNobodyConfirmedIsBehind(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishConfirm(2, "a", "20", "1")
	r.must(r.syncOnce())
	r.expire()
	st := r.must(r.applyOnce())
	if st.Generation != 1 || st.Sync != spec.SyncBehind || !strings.Contains(st.SyncDetail, "generation 2 was undone: nobody confirmed it") {
		t.Errorf("%d, %s: %s", st.Generation, st.Sync, st.SyncDetail)
	}
	events, _ := r.blackBox()
	if i := slices.IndexFunc(events, func(e spec.Event) bool { return e.Event == spec.EventUndone }); i < 0 || !slices.ContainsFunc(decide.Table, func(r decide.Row) bool { return r.Name == events[i].Transition }) {
		t.Errorf("%s: %+v", paths.State, events)
	}
}

// A host that is attached to a fleet with nothing for it decides nothing, and asks again.
func TestANodeWithNothing(t *testing.T) {
	m := newMachine(t)
	m.enrolled()
	if err := os.WriteFile(m.root+"/etc/machine-id", []byte("1234\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	gathered := traces.Into()
	o := session.Options{Root: m.root, Kernel: &m.kernel, Name: "superhost", Say: t.Logf, Decided: func(f *decide.Facts, s decide.Step) {
		names = append(names, s.Name)
		if gathered != nil {
			gathered(f, s)
		}
	}}
	act := func(do func(*Node) (*spec.Status, error)) string {
		t.Helper()
		names = nil
		n, err := Open(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() // the test looks at names
		if _, err := do(n); err == nil {
			t.Error("nothing is in effect, and nobody says so")
		}
		return strings.Join(names, " ")
	}
	if got := act(func(n *Node) (*spec.Status, error) { return n.cycle.Apply(t.Context()) }); got != "settled nothing-runs" {
		t.Errorf("a look: %s", got)
	}
	if got := act(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(t.Context()) }); got != "settled no-answer-at-first" {
		t.Errorf("a question: %s", got)
	}
}

// A check that fails while somebody has paused the node changes nothing, until it is resumed.
func TestACheckFailsWhilePaused(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 0)
	m.sync()
	n := m.open()
	if err := errors.Join(n.Pause("", 0), n.Close()); err != nil {
		t.Fatal(err)
	}
	if m.judge(3); m.swappiness("") != "20" || m.state().Staged == nil || m.state().Staged.Failed != "" {
		t.Fatalf("a paused node went back: swappiness %s, %+v", m.swappiness(""), m.state().Staged)
	}
	n = m.open()
	if err := errors.Join(n.Resume(), n.Close()); err != nil {
		t.Fatal(err)
	}
	if m.judge(5); m.swappiness("") != "10" || m.state().Staged.Failed == "" {
		t.Errorf("once it is resumed: swappiness %s, %+v", m.swappiness(""), m.state().Staged)
	}
}
