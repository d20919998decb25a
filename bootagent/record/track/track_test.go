// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

// fleet is a layout with one key, and a node that follows it.
type fleet struct {
	*track.Tracker
	published *fixture.Fleet
	t         *testing.T
	dir       string // state directory
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{published: fixture.NewFleet(t), t: t, dir: t.TempDir()}
	folder, err := state.Open(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Tracker = &track.Tracker{Source: f.published.Registry.Source(), Folder: folder, Identity: trust.Identity{Node: "superhost"}, Say: t.Logf, Bootstrap: f.published.Bootstrap()}
	return f
}

// said holds the content of a statement besides its subject.
type said struct {
	issued            time.Time // zero is now
	epoch, generation uint64
	permitted         bool     // the epoch key has signed the epoch
	macs              []string // that the overlay is bound to
}

func (w said) date() time.Time {
	if w.issued.IsZero() {
		return time.Now().UTC().Truncate(time.Second)
	}
	return w.issued
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// permit returns the epoch key's permission where a statement has it.
func (f *fleet) permit(w said) [][]byte {
	if !w.permitted {
		return nil
	}
	return [][]byte{f.published.Permit(w.epoch)}
}

// publish signs an overlay with one sysctl and pushes it.
func (f *fleet) publish(generation uint64, value string) {
	f.t.Helper()
	f.overlay(said{generation: generation}, value)
}

func (f *fleet) overlay(w said, value string) {
	f.t.Helper()
	const layer = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	f.published.Overlay(spec.Overlay{Core: spec.Core{Layer: layer, Match: spec.Match{MACs: w.macs}}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: value}}}},
		sign.Predicate{Epoch: w.epoch, Generation: w.generation, IssuedAt: w.date(), Expires: w.date().Add(30 * 24 * time.Hour)}, f.permit(w)...)
}

func (f *fleet) sync() *track.Found {
	f.t.Helper()
	found, err := f.Sync(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

func (f *fleet) state() *state.State {
	f.t.Helper()
	s, err := f.Folder.Load()
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// promote does what a boot that came up does.
func (f *fleet) promote() {
	f.t.Helper()
	s := f.state()
	s.Promote()
	if err := f.Folder.Save(s); err != nil {
		f.t.Fatal(err)
	}
}

// prove publishes a generation, which a boot accepts and comes up with.
func (f *fleet) prove(generation uint64, swappiness string) {
	f.t.Helper()
	f.publish(generation, swappiness)
	f.sync()
	f.promote()
}

func TestSyncRemembersBeforeItReturns(t *testing.T) {
	f := newFleet(t)
	if _, err := f.Good(false); !errors.Is(err, track.ErrNothing) {
		t.Fatalf("a new node has %v", err)
	}
	f.publish(7, "10")
	found := f.sync()
	if found.Overlay.Items.Sysctl[0].Value != "10" || found.Generation.Generation != 7 {
		t.Fatalf("%+v", found)
	}
	if s := f.state(); s.Floor.Generation != 7 || s.AtFloor != found.Generation.Overlay || s.Staged == nil || s.Newest == 0 {
		t.Errorf("state %+v", s)
	}
	f.promote()
	if again := f.sync(); !again.Unchanged || again.Generation.Overlay != found.Generation.Overlay {
		t.Errorf("the second time: %+v", again)
	}
}

// TestTheSameContentInAnotherEpoch is another publication, which the node has yet to accept and prove.
func TestTheSameContentInAnotherEpoch(t *testing.T) {
	f := newFleet(t)
	f.prove(7, "10")
	f.overlay(said{epoch: 1, generation: 7, permitted: true}, "10")
	found := f.sync()
	if s := f.state(); found.Unchanged || found.Generation.Epoch != 1 || s.Floor.Epoch != 1 || s.Staged == nil || s.Staged.Epoch != 1 {
		t.Errorf("%+v, %+v", found, s)
	}
	f.promote()
	if again := f.sync(); !again.Unchanged || again.Generation.Epoch != 1 {
		t.Errorf("the second time: %+v", again)
	}
}

func TestARefusalChangesNothing(t *testing.T) {
	f := newFleet(t)
	f.prove(7, "10")
	before, err := os.ReadFile(filepath.Join(f.dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, attack := range []struct {
		generation uint64
		want       refusal.Code
	}{{6, refusal.Rollback}, {7, refusal.Replay}} {
		f.publish(attack.generation, "99")
		_, err := f.Sync(t.Context())
		if refusal.Of(err) != attack.want {
			t.Errorf("generation %d: %v, want %s", attack.generation, err, attack.want)
		}
		if sync, _ := track.Describe(err); sync != spec.SyncRefused(string(attack.want)) {
			t.Errorf("described as %q", sync)
		}
	}
	if after, _ := os.ReadFile(filepath.Join(f.dir, "state.json")); string(after) != string(before) {
		t.Errorf("the state changed\nfrom %s\nto   %s", before, after)
	}
}

func TestLastGoodIsNotBelowItsOwnFloor(t *testing.T) {
	f := newFleet(t)
	f.prove(7, "10")
	f.publish(8, "20")
	f.sync() // accepted, floor 8, but never proven
	good, err := f.Good(false)
	if err != nil || good[0].Generation.Generation != 7 || good[0].Overlay.Items.Sysctl[0].Value != "10" {
		t.Fatalf("%+v, %v", good, err)
	}
}

func TestKeptOverlaysAreVerifiedAgain(t *testing.T) {
	f := newFleet(t)
	f.publish(7, "10")
	found := f.sync()
	f.promote()
	files, err := filepath.Glob(filepath.Join(f.dir, "overlays", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	other := newFleet(t) // same names, another key
	other.publish(7, "10")
	theirs := other.sync()
	data, err := other.Folder.LoadOverlay(theirs.Generation.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Recall(&found.Generation); refusal.Of(err) != refusal.UnknownKey {
		t.Errorf("an overlay that somebody put on the disk: %v", err)
	}
}

func TestAKeptOverlayIsNotAnOlderOneOfTheNode(t *testing.T) {
	f := newFleet(t)
	f.publish(6, "10")
	older, err := f.Folder.LoadOverlay(f.sync().Generation.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	f.promote()
	f.publish(7, "20")
	found := f.sync()
	f.promote()
	if err := f.Folder.SaveOverlay(found.Generation.Overlay, older); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Recall(&found.Generation); refusal.Of(err) != refusal.Rollback {
		t.Errorf("an older overlay in the place of generation 7: %v", err)
	}
}

func TestFrozen(t *testing.T) {
	f := newFleet(t)
	f.prove(7, "10")
	s := f.state()
	s.Tracking = spec.Frozen
	if err := f.Folder.Save(s); err != nil {
		t.Fatal(err)
	}
	f.publish(8, "20")
	if found := f.sync(); !found.Held || found.Generation.Generation != 8 {
		t.Errorf("%+v", found)
	}
	if s := f.state(); s.Floor.Generation != 7 || s.Staged != nil {
		t.Errorf("a frozen node moved: %+v", s)
	}
}

// What a boot began before its services started, and no agent came after, is taken again; what an
// agent has on trial is not.
func TestTakesAgainWhatABootBegan(t *testing.T) {
	f := newFleet(t)
	f.prove(7, "10")
	f.publish(8, "20")
	g := f.sync().Generation
	for _, early := range []bool{false, true} {
		s := f.state()
		s.Trial = &state.Trial{Generation: g, Boot: "another", Confirm: state.ByReach, Early: early}
		if got := f.Held(s, g) == ""; got != early {
			t.Errorf("begun early %v: it is taken %v", early, got)
		}
		s.Trial.Reason = "undone"
		if f.Held(s, g) == "" {
			t.Errorf("begun early %v: what was undone is taken", early)
		}
	}
}

func TestLookRemembersNothing(t *testing.T) {
	f := newFleet(t)
	f.publish(7, "10")
	if _, err := f.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := f.state(); s.Staged != nil || s.Floor.Generation != 0 {
		t.Errorf("%+v", s)
	}
}

// A state that names what a disk lost must not lock the node out behind "not
// modified".
func TestAKeptOverlayThatIsGoneIsAskedForAgain(t *testing.T) {
	f := newFleet(t)
	f.prove(7, "10")
	files, _ := filepath.Glob(filepath.Join(f.dir, "overlays", "*"))
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if found := f.sync(); found.Overlay.Items.Sysctl[0].Value != "10" {
		t.Errorf("%+v", found)
	}
}

// asked notes what became of the requests for overlays.
type asked struct {
	oci.Source
	unchanged int
}

func (a *asked) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	r, err := a.Source.Manifest(ctx, repo, reference, etag)
	if repo == oci.RepoNode && r.NotModified {
		a.unchanged++
	}
	return r, err
}

// An unchanged overlay is not sent again; one that somebody put in its place on
// the disk is not taken for it.
func TestUnchangedMeansTheBytesThatAreKept(t *testing.T) {
	f := newFleet(t)
	source := &asked{Source: f.Source}
	f.Source = source
	f.publish(7, "10")
	old := f.sync()
	f.promote()
	f.prove(8, "20")
	if f.sync(); source.unchanged != 1 {
		t.Errorf("%d answers were \"not modified\", want 1", source.unchanged)
	}
	f.publish(7, "10")
	data := f.kept(old) // as it was signed
	f.publish(8, "20")
	s := f.state()
	s.Current.Overlay, s.Current.Generation, s.Floor.Generation, s.AtFloor = old.Generation.Overlay, 7, 7, old.Generation.Overlay
	if err := errors.Join(f.Folder.Save(s), f.Folder.SaveOverlay(old.Generation.Overlay, data)); err != nil {
		t.Fatal(err)
	}
	if found := f.sync(); found.Generation.Generation != 8 {
		t.Errorf("generation %d is believed to be the newest", found.Generation.Generation)
	}
}

// kept returns the published generation in the form that the state directory has it.
func (f *fleet) kept(want *track.Found) []byte {
	f.t.Helper()
	c, err := trust.Overlay(f.t.Context(), f.Source, f.Identity.Tags(), "")
	if err != nil || oci.Digest(c.Document) != want.Generation.Overlay {
		f.t.Fatal(err)
	}
	return c.Save()
}

// A floor that is not on disk does not count: what was accepted must not act.
func TestWhatCannotBeKeptDoesNotAct(t *testing.T) {
	f := newFleet(t)
	f.publish(7, "10")
	overlays := filepath.Join(f.dir, "overlays")
	if err := errors.Join(os.RemoveAll(overlays), os.WriteFile(overlays, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	found, err := f.Sync(t.Context())
	if sync, detail := track.Describe(err); found != nil || sync != "behind" || detail == "" {
		t.Errorf("%+v, %s: %s", found, sync, detail)
	}
}

// current pushes a fleet:current with a minimum and a reject list.
func (f *fleet) current(issued time.Time, minimum uint64, reject ...string) {
	f.t.Helper()
	f.fleetCurrent(said{issued: issued, generation: minimum}, reject...)
}

func (f *fleet) fleetCurrent(w said, reject ...string) {
	f.t.Helper()
	f.published.Current(spec.Fleet{Minimum: spec.Floor{Epoch: w.epoch, Generation: w.generation}, Reject: reject}, w.date(), f.permit(w)...)
}

// What the fleet rejects is not what a node falls back on, not even without
// network, and a replayed list does not take it back.
func TestRejectedIsNoFallback(t *testing.T) {
	f := newFleet(t)
	f.publish(7, "10")
	found := f.sync()
	f.promote()
	now := time.Now().UTC().Truncate(time.Second)
	f.current(now, 0, found.Generation.Overlay)
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Rejected {
		t.Fatalf("%v, want rejected", err)
	}
	if good, err := f.Good(false); refusal.Of(err) != refusal.Rejected {
		t.Errorf("a boot would fall back on %+v, %v", good, err)
	}
	if _, err := f.Recall(&found.Generation); err != nil {
		t.Errorf("the running node no longer knows what it is: %v", err)
	}
	f.current(now.Add(-time.Hour), 0)
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Rejected {
		t.Errorf("an older fleet:current: %v, want rejected", err)
	}
	f.current(now.Add(time.Hour), 0)
	if f.sync(); f.state().Fleet.Reject != nil {
		t.Error("a newer list did not replace the old one")
	}
}

func TestTheFleetsMinimumOutlivesItsDocument(t *testing.T) {
	f := newFleet(t)
	f.publish(7, "10")
	f.sync()
	f.current(time.Now().UTC().Truncate(time.Second), 9)
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Stale {
		t.Fatalf("%v, want stale", err)
	}
	if err := f.published.Registry.Delete(t.Context(), oci.RepoFleet, "current"); err != nil {
		t.Fatal(err)
	}
	f.publish(8, "20")
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.Stale {
		t.Errorf("with fleet:current kept away: %v, want stale", err)
	}
}

func TestTheOneBeforeIsGoodWhereTheLastRotted(t *testing.T) {
	f := newFleet(t)
	f.publish(7, "10")
	old := f.sync()
	f.promote()
	s := f.state()
	s.Previous = s.Current
	if err := f.Folder.Save(s); err != nil {
		t.Fatal(err)
	}
	f.publish(8, "20")
	rotten := f.sync()
	s = f.state()
	s.Promote()
	if err := f.Folder.Save(s); err != nil {
		t.Fatal(err)
	}
	if err := f.Folder.SaveOverlay(rotten.Generation.Overlay, []byte("{")); err != nil {
		t.Fatal(err)
	}
	good, err := f.Good(false)
	if err != nil || len(good) != 1 || good[0].Generation.Overlay != old.Generation.Overlay {
		t.Errorf("%+v, %v", good, err)
	}
}
