// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// What an operator says is kept and written down once; what is said already is neither.
func TestHolds(t *testing.T) {
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.Save(&state.State{Tracking: spec.Following, Current: &state.Generation{Generation: 7}}); err != nil {
		t.Fatal(err)
	}
	var said []string
	h := &Holds{Owner: record.New(folder, new(record.Boot), filepath.Join(t.TempDir(), "boot.json")), By: "ann",
		Log: func(event string, fields ...events.Field) {
			for _, f := range fields {
				if f.Name != "until" {
					event += fmt.Sprintf(" %s=%v", f.Name, f.Value)
				}
			}
			said = append(said, event)
		}}
	for _, c := range []struct {
		say         func() error
		record      string // "" is none
		hold, pause string // who is said to hold it
	}{
		{func() error { return h.Forward("") }, "", "", ""},
		{h.Resume, "", "", ""},
		{func() error { return h.Freeze("it hangs", time.Hour) }, "frozen generation=7 why=it hangs", "ann", ""},
		{func() error { return h.Pause("", 0) }, "paused generation=7 why=", "ann", "ann"},
		{h.Expire, "forward generation=7 why=the time of the freeze is over", "", "ann"},
		{h.Resume, "resumed generation=7", "", ""},
	} {
		said = nil
		if err := c.say(); err != nil {
			t.Fatal(err)
		}
		s, err := folder.Load()
		if err != nil {
			t.Fatal(err)
		}
		author := func(h *spec.Hold) string {
			if h == nil {
				return ""
			}
			return h.Author
		}
		if got := strings.Join(said, "; "); got != c.record || author(s.Hold) != c.hold || author(s.Paused) != c.pause || (s.Tracking == spec.Frozen) != (c.hold != "") {
			t.Errorf("%q and %+v, want %q, held by %q, paused by %q", got, s, c.record, c.hold, c.pause)
		}
	}
}

// Nothing is written down that was not kept.
func TestWhatIsNotKeptIsNotSaid(t *testing.T) {
	h := &Holds{Owner: record.New(state.View(filepath.Join(t.TempDir(), "none")), new(record.Boot), ""),
		Log: func(event string, _ ...events.Field) { t.Errorf("said: %s", event) }}
	if h.Freeze("", 0) == nil || h.Pause("", 0) == nil {
		t.Error("it was kept")
	}
}

func TestChoose(t *testing.T) {
	kept := []state.Generation{{Overlay: "c", Generation: 3}, {Overlay: "b", Generation: 2}, {Overlay: "a", Generation: 1}}
	for _, c := range []struct {
		choose Choice
		now    int
		want   *state.Generation
	}{
		{Earlier, 0, &kept[1]}, {Earlier, 2, nil}, {Numbered(3), 2, &kept[0]}, {Numbered(4), 0, nil},
	} {
		if got := c.choose(slices.Clone(kept), kept[c.now]); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
	var err error = NotKept(kept)
	var none NotKept
	if !errors.As(err, &none) || !strings.HasPrefix(none.Hint(), "it keeps 3, 2, 1;") {
		t.Error(none.Hint())
	}
}
