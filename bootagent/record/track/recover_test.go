// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

const first, second = "state.json", "state.copy.json"

// two publishes and proves generation 7 and accepts 8.
func two(t *testing.T) *fleet {
	f := newFleet(t)
	f.publish(7, "7")
	f.current(time.Now().UTC().Truncate(time.Second), 1, rejected)
	f.sync()
	f.promote()
	f.publish(8, "8")
	f.sync()
	return f
}

// listen collects what a node says.
func (f *fleet) listen() *strings.Builder {
	var b strings.Builder
	f.Say = func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	return &b
}

// A state that nothing can read keeps no node down, and forgets no floor: the
// overlays beside it are signed.
func TestAnUnreadableStateIsRebuilt(t *testing.T) {
	for what, text := range map[string]string{
		"empty": "", "half": `{"tracking":"following","flo`, "garbage": "\x00\xff", "no state": "{}", "null": "null",
		"of a tracking that nobody knows": `{"tracking":"x","floor":{"epoch":0,"generation":9}}`,
		"an altered floor":                `{"sum":"00000000","tracking":"following","floor":{"epoch":0,"generation":1}}`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := two(t)
			for _, name := range []string{first, second} {
				f.must(os.WriteFile(f.Folder.Path(name), []byte(text), 0o600))
			}
			if _, err := f.Sync(t.Context()); !errors.Is(err, state.ErrDamaged) {
				t.Fatalf("it acted before it was rebuilt: %v", err)
			}
			heard := f.listen()
			f.must(f.Recover())
			s := f.state()
			if s.Floor.Generation != 8 || s.Current == nil || s.Current.Generation != 7 || s.Staged == nil || s.Staged.Generation != 8 {
				t.Errorf("rebuilt as %+v", s)
			}
			if len(s.Fleet.Reject) != 1 || len(s.Lost) == 0 || !strings.Contains(heard.String(), first) {
				t.Errorf("rejects %v, lost %v; said %s", s.Fleet.Reject, s.Lost, heard)
			}
			f.publish(7, "7")
			if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Rollback {
				t.Errorf("an old overlay: %v, want rollback", err)
			}
		})
	}
}

func TestOneCopyIsEnough(t *testing.T) {
	for _, name := range []string{first, second} {
		f := two(t)
		s := f.state()
		s.Tracking = spec.Frozen
		f.must(f.Folder.Save(s))
		f.must(os.WriteFile(f.Folder.Path(name), []byte("rot"), 0o600))
		if got := f.state(); got.Tracking != spec.Frozen || got.Floor.Generation != 8 {
			t.Errorf("without %s: %+v", name, got)
		}
		heard := f.listen()
		f.must(f.Recover())
		if got := f.state(); got.Tracking != spec.Frozen || got.Current.Generation != 7 || !strings.Contains(heard.String(), name) {
			t.Errorf("without %s: %+v, said %s", name, got, heard)
		}
		if err := f.Folder.Damage(); err != nil {
			t.Errorf("it was not repaired: %v", err)
		}
	}
}

// A second copy that is a write behind, as after a power cut between the two, brings back no
// floor: it is mended by the next process that starts, and where the first is lost before that, the
// floor is raised to what is kept, and said.
func TestASecondCopyThatIsBehind(t *testing.T) {
	behind := func(f *fleet) {
		f.must(f.Folder.Save(f.state()))
		old, err := os.ReadFile(f.Folder.Path(second))
		f.must(err)
		f.publish(9, "9")
		f.sync()
		f.must(os.WriteFile(f.Folder.Path(second), old, 0o600))
	}
	t.Run("mended", func(t *testing.T) {
		f := two(t)
		behind(f)
		heard := f.listen()
		f.must(f.Recover())
		f.must(os.Remove(f.Folder.Path(first)))
		if s := f.state(); s.Floor.Generation != 9 || s.Lost != nil || heard.Len() > 0 {
			t.Errorf("%+v, said %s", s, heard)
		}
	})
	for what, lose := range map[string]func(string) error{
		"torn": func(name string) error { return os.WriteFile(name, []byte("rot"), 0o600) },
		"gone": os.Remove,
	} {
		t.Run(what, func(t *testing.T) {
			f := two(t)
			behind(f)
			f.must(lose(f.Folder.Path(first)))
			heard := f.listen()
			f.must(f.Recover())
			s := f.state()
			if s.Floor.Generation != 9 || len(s.Lost) == 0 || !strings.Contains(heard.String(), first) {
				t.Errorf("%+v, said %s", s, heard)
			}
			f.publish(8, "8")
			if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Rollback {
				t.Errorf("an old overlay: %v, want rollback", err)
			}
		})
	}
}

// Overlays of others do not become a floor.
func TestOnlyVerifiedOverlaysRebuildAState(t *testing.T) {
	f, thief := two(t), newFleet(t)
	thief.publish(99, "99")
	theirs := thief.sync()
	data, err := thief.Folder.LoadOverlay(theirs.Generation.Overlay)
	f.must(err)
	f.must(f.Folder.SaveOverlay(theirs.Generation.Overlay, data))
	for _, name := range []string{first, second} {
		f.must(os.WriteFile(f.Folder.Path(name), nil, 0o600))
	}
	f.must(f.Recover())
	if s := f.state(); s.Floor.Generation != 8 {
		t.Errorf("floor %+v", s.Floor)
	}
}

// A node that only DHCP gave its name comes up with a rebuilt state.
func TestTheNameFromDHCPIsRebuilt(t *testing.T) {
	f := two(t)
	for _, name := range []string{first, second} {
		f.must(os.WriteFile(f.Folder.Path(name), nil, 0o600))
	}
	f.Identity = trust.Identity{}
	f.must(f.Recover())
	if s := f.state(); s.DHCPName != "superhost" || s.Floor.Generation != 8 {
		t.Errorf("%+v", s)
	}
}

// Hardware changes fleets: the floor of the one before says nothing in the next.
func TestTheStateOfAnotherFleetIsSetAside(t *testing.T) {
	f := two(t)
	heard := f.listen()
	f.Bootstrap.Fleet = "metal-b"
	f.must(f.Recover())
	if got := f.state(); got.Floor != (spec.Floor{}) || got.Current != nil || got.OfFleet != "metal-b" {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(f.Folder.Path("other-fleet", first)); err != nil || !strings.Contains(heard.String(), `"metal-a"`) {
		t.Errorf("%v, said %s", err, heard)
	}
	if _, err := f.Good(false); !errors.Is(err, track.ErrNothing) {
		t.Errorf("it has %v to fall back on", err)
	}
}

func TestAGoodStateIsLeftAlone(t *testing.T) {
	f := two(t)
	before, err := os.ReadFile(f.Folder.Path(first))
	f.must(err)
	heard := f.listen()
	f.must(f.Recover())
	after, err := os.ReadFile(f.Folder.Path(first))
	f.must(err)
	if string(before) != string(after) || heard.Len() > 0 {
		t.Errorf("it became %s, said %s", after, heard)
	}
}
