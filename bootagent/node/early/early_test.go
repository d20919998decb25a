// SPDX-License-Identifier: Apache-2.0

package early

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// told collects the written events.
type told []string

func (l *told) Record(event string, fields ...events.Field) {
	for _, f := range fields {
		event += fmt.Sprintf(" %s=%v", f.Name, f.Value)
	}
	*l = append(*l, event)
}
func (*told) RecordChanges(items.Result, uint64, string) {}
func (*told) Say(string, ...any)                         {}

// first is a kind that is set before services start.
type first struct {
	item.Item
	looks func()
}

func (first) Name() string { return items.EarlyKernel[0] }
func (first) Wanted() int  { return 1 }
func (f first) Check(context.Context) ([]spec.Drift, error) {
	f.looks()
	return nil, nil
}

func starting(t *testing.T) (*Early, *told) {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err == nil {
		err = folder.Save(&state.State{Tracking: spec.Following})
	}
	if err != nil {
		t.Fatal(err)
	}
	log := new(told)
	boot := &record.Boot{Source: spec.SourceFetched, Live: record.Live{Began: "r"}}
	return &Early{Dir: t.TempDir(), Kernel: "k", Owner: record.New(folder, boot, filepath.Join(t.TempDir(), "boot.json")),
		Within: time.Minute, Log: log, Journal: itemtest.Journal(t, t.TempDir()),
		Items: func(*track.Found) []item.Item { return nil },
		Kept: func(*state.State, state.Generation) spec.Items {
			return spec.Items{Sysctl: []spec.Sysctl{{Key: "net/a", Value: "0"}}}
		}}, log
}

func next() *track.Found {
	f := &track.Found{Generation: state.Generation{Generation: 2, Epoch: 1, Overlay: "o", Layer: "l"}}
	f.Overlay.Items = spec.Items{Sysctl: []spec.Sysctl{{Key: "net/ipv4/ip_forward", Value: "1"}, {Key: "vm/swappiness", Value: "7"}},
		Mounts: []spec.Mount{{Target: "/srv/a b", Device: "LABEL=a", Type: "ext4"}, {Target: "/srv/c", Device: "LABEL=c", Type: "ext4"}}}
	return f
}

// What systemd mounts later at or above a path would hide what is mounted there before, unless it
// is mounted already.
func TestWhatIsCoveredLater(t *testing.T) {
	e, _ := starting(t)
	for _, dir := range []string{"/proc/self", unitDirs[0], unitDirs[3]} {
		if err := os.MkdirAll(e.Dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"/proc/self/mountinfo": "1 2 0:3 / /srv/c rw - ext4 x rw\n",
		unitDirs[3] + "/srv-a\\x20b.mount": "", unitDirs[0] + "/srv-c.mount": ""} {
		if err := os.WriteFile(e.Dir+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/null", e.Dir+unitDirs[0]+"/srv-d.mount"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/srv/a b": true, "/srv/a b/below": true, "/srv/c": false, "/srv/d": false, "/srv": false,
		"LABEL=a": false} {
		if got := e.coveredLater(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	up := next()
	up.Overlay.Items.Mounts = append(up.Overlay.Items.Mounts,
		spec.Mount{Target: "/srv/up", Device: "overlay", Type: "overlay", Options: []string{"lowerdir=/usr/share:/srv/a b/x"}})
	if p := e.Plan(new(state.State), up, true, spec.WhenEarly); len(p.want.Mounts) != 1 || p.want.Mounts[0].Target != "/srv/c" {
		t.Errorf("%+v", p.want.Mounts)
	}
}

// A directory that is not there yet is no disk that comes, nor does a user.
func TestWhatNamesADisk(t *testing.T) {
	want := spec.Items{
		Mounts: []spec.Mount{{Target: "/a", Device: "/dev/sdx"}, {Target: "/b", Device: "LABEL=b"}, {Target: "/c", Device: "PARTUUID=c"},
			{Target: "/d", Device: "/dev/sdx", Options: []string{"nofail"}}, {Target: "/e", Device: "/srv/e", Options: []string{"bind"}},
			{Target: "/f", Device: "overlay", Type: "overlay", Options: []string{"lowerdir=/f1:/f2"}},
			{Target: "/g", Device: "tmpfs", Type: "tmpfs", Options: []string{"uid=nobody-is"}}},
		Swaps: []spec.Swap{{Device: "/srv/swap"}, {Device: "UUID=u"}},
	}
	for key, waits := range map[string]bool{"/a": true, "/b": true, "/c": true, "UUID=u": true,
		"/d": false, "/e": false, "/f": false, "/g": false, "/srv/swap": false, "/h": false} {
		if got := namesDisk(&want, spec.Drift{Key: key}); got != waits {
			t.Errorf("%s: %v", key, got)
		}
	}
}

// That it begins, and what is on trial, is written down before anything is set, and counts until
// the agent has come.
func TestSet(t *testing.T) {
	e, log := starting(t)
	plan := func() (Plan, decide.Prior) {
		now, err := e.Owner.Read()
		if err != nil {
			t.Fatal(err)
		}
		p := e.Plan(now.State, next(), true, spec.WhenEarly)
		return p, p.Prior(now)
	}
	p, prior := plan()
	if prior.Runs != 0 || !prior.Heard || prior.Cuts == "" {
		t.Errorf("%+v", prior)
	}
	looked := 0
	e.Items = func(f *track.Found) []item.Item {
		return []item.Item{first{looks: func() {
			looked++
			s, err := e.Owner.State()
			if err != nil || s.Early.Of("o") != 1 || s.Trial == nil || s.Trial.Confirm != state.ByReach || s.Trial.Within != 60 ||
				s.Trial.Boot != "k" || len(s.Trial.Kept.Sysctl) != 1 {
				t.Errorf("%+v, %v", s, err)
			}
		}}}
	}
	if err := e.Set(t.Context(), p, decide.Step{Act: decide.SetOnTrial, Name: "n", Why: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, prior := plan(); prior.Runs != 1 || looked == 0 {
		t.Errorf("%+v", prior)
	}
	e.Items = func(f *track.Found) []item.Item {
		if slices.ContainsFunc(f.Overlay.Items.Sysctl, func(s spec.Sysctl) bool { return s.Key == "net/ipv4/ip_forward" }) ||
			len(f.Overlay.Items.Sysctl) != 1 {
			t.Errorf("%+v", f.Overlay.Items)
		}
		return nil
	}
	if err := e.Set(t.Context(), p, decide.Step{Act: decide.SetHarmless, Name: "n", Why: "w"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Set(t.Context(), p, decide.Step{Act: decide.LeaveOut, Name: "m", Why: "v"}); err != nil {
		t.Fatal(err)
	}
	s, err := e.Owner.State()
	if err != nil || s.Early != nil || !s.Trial.Early {
		t.Errorf("%+v, %v", s, err)
	}
	if want := []string{"early generation=2 why=w transition=n", "early generation=2 why=w transition=n",
		"early-left-out why=v transition=m"}; !slices.Equal(*log, want) {
		t.Errorf("%q", *log)
	}
}

// Of what comes before remote-fs.target nothing is counted, and no trial begins.
func TestSetRemote(t *testing.T) {
	e, log := starting(t)
	name := e.path(paths.Remote)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("/srv/c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	now, err := e.Owner.Read()
	if err != nil {
		t.Fatal(err)
	}
	p := e.Plan(now.State, next(), true, spec.WhenRemote)
	if prior := p.Prior(now); len(p.want.Mounts) != 1 || p.want.Mounts[0].Target != "/srv/c" || len(p.want.Sysctl) > 0 || prior.Heard {
		t.Errorf("%+v, %+v", p.want, prior)
	}
	if err := e.Set(t.Context(), p, decide.Step{Act: decide.Set, Name: "n", Why: "w"}); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Owner.State(); err != nil || s.Early != nil || s.Trial != nil || len(*log) != 1 {
		t.Errorf("%+v, %v, %q", s, err, *log)
	}
}
