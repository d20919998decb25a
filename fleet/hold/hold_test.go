// SPDX-License-Identifier: Apache-2.0

package hold_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fleettest"
)

// fleet is one whose nodes are held.
type fleet struct{ *fleettest.Fleet }

// diskless is node n0 booting with an empty floor: fleet:current is all that it knows.
func (f fleet) diskless() *trust.Accepted {
	f.T.Helper()
	id := trust.Identity{MACs: []string{"52:54:00:00:00:00"}}
	b := spec.Bootstrap{Fleet: "metal-a", Keys: sign.PEMs(f.Policy.Operator), Threshold: 1, EpochKeys: sign.PEMs(f.Policy.Epoch)}
	overlay, err := trust.Overlay(f.T.Context(), f.Registry.Source(), id.Tags(), "")
	must(f.T, err)
	current, err := trust.Current(f.T.Context(), f.Registry.Source(), "")
	must(f.T, err)
	state, err := trust.AcceptFleet(current, b, spec.Floor{}, 0, trust.Clock{RTC: f.Now})
	must(f.T, err)
	a, err := trust.All().Accept(overlay, b, id, trust.Clock{RTC: f.Now}, trust.Known{Fleet: state})
	must(f.T, err)
	return a
}

func (f fleet) runs(value string) {
	f.T.Helper()
	if got := f.diskless().Overlay.Items.Sysctl[0].Value; got != value {
		f.T.Fatalf("the node runs %s, want %s", got, value)
	}
}

func n0(reason string) hold.Order {
	return hold.Order{Nodes: []string{"n0"}, By: publish.By{Author: "eve", Reason: reason}}
}

// TestAFrozenNodeKeepsItsContent: whatever is published, and however far the least
// epoch rises, its content stays, and it can boot with nothing in memory.
func TestAFrozenNodeKeepsItsContent(t *testing.T) {
	f := fleet{fleettest.New(t)}
	f.MustPublish(f.Nodes("", "10", "10"), publish.Options{})
	r, err := hold.Freeze(t.Context(), f.Publisher, n0("a disk is on its way"))
	must(t, err)
	if len(r.Held) != 1 || len(r.Published) != 0 || r.Generation != 2 || r.Unchanged != 1 {
		t.Fatalf("freeze: %+v", r)
	}
	want := spec.Hold{Kind: spec.HoldFreeze, Reason: "a disk is on its way", Author: "eve", Since: f.Now.Unix()}
	if got := r.Held[0].Holds; len(got) != 1 || got[0].Kind != want.Kind || got[0].Reason != want.Reason || got[0].Author != want.Author || got[0].Until != 0 {
		t.Errorf("held as %+v, want %+v", got, want)
	}
	f.runs("10")
	for _, o := range []publish.Options{{}, {All: true}, {Epoch: 1, EpochKey: f.Top}, {Epoch: 2, EpochKey: f.Top}} {
		r := f.MustPublish(f.Nodes("", "20", "20"), o)
		if len(r.Held) != 1 || r.Held[0].Node != "n0" {
			t.Fatalf("publish %+v does not name what it left: %+v", o, r)
		}
		f.runs("10")
		f.IsGreen(f.Values())
		if a := f.diskless(); o.Epoch > 0 && a.Floor.Epoch != o.Epoch {
			t.Errorf("after epoch %d the node is at %+v", o.Epoch, a.Floor)
		}
	}
	f.Now = f.Now.Add(25 * 24 * time.Hour)
	if r, err := f.Refresh(t.Context(), publish.Lists{}); err != nil || len(r.Resigned) != 2 {
		t.Fatalf("refresh: %+v, %v", r, err)
	}
	f.runs("10")
	r, err = hold.Forward(t.Context(), f.Publisher, n0(""))
	if err != nil || len(r.Ended) != 1 {
		t.Fatalf("forward: %+v, %v", r, err)
	}
	f.runs("10") // a forward publishes nothing
	f.MustPublish(f.Nodes("", "20", "20"), publish.Options{})
	f.runs("20")
	f.IsGreen(f.Values())
}

// TestAPinIsSticky is the emergency, and a colleague's publish after it.
func TestAPinIsSticky(t *testing.T) {
	f := fleet{fleettest.New(t)}
	one, two := f.Layer("1", "default", f.Release).Digest, f.Layer("2", "default", f.Release).Digest
	f.MustPublish(f.Nodes(two, "10", "10"), publish.Options{})
	if _, err := hold.Pin(t.Context(), f.Publisher, hold.Order{All: true, By: publish.By{Reason: "2 does not boot"}}, one); err != nil {
		t.Fatal(err)
	}
	if r := f.MustPublish(f.Nodes(two, "20", "20"), publish.Options{}); len(r.Held) != 2 || len(r.Published) != 0 {
		t.Errorf("publish over a pin: %+v", r)
	}
	f.MustBoot(2, one)
	must(t, ignore(hold.Forward(t.Context(), f.Publisher, hold.Order{All: true})))
	f.MustPublish(f.Nodes(two, "20", "20"), publish.Options{})
	f.MustBoot(4, two)
}

func ignore(_ *publish.Result, err error) error { return err }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRollback(t *testing.T) {
	f := fleet{fleettest.New(t)}
	one, two := f.Layer("1", "default", f.Release).Digest, f.Layer("2", "default", f.Release).Digest
	if _, err := hold.Rollback(t.Context(), f.Publisher, n0(""), ""); err == nil {
		t.Fatal("nothing to roll back to, and no error")
	}
	f.MustPublish(f.Nodes(one, "10", "1"), publish.Options{})
	if _, err := hold.Rollback(t.Context(), f.Publisher, n0(""), ""); err == nil || !strings.Contains(err.Error(), "had nothing else before") {
		t.Fatalf("a node that had nothing before: %v", err)
	}
	f.MustPublish(f.Nodes(two, "20", "1"), publish.Options{})
	f.MustPublish(f.Nodes(two, "20", "2"), publish.Options{}) // n0 does not change
	f.MustPublish(f.Nodes(two, "30", "2"), publish.Options{})
	r, err := hold.Rollback(t.Context(), f.Publisher, n0("30 is too much"), "")
	must(t, err)
	if len(r.Published) != 1 || r.Generation != 5 {
		t.Fatalf("rollback: %+v", r)
	}
	f.runs("20")
	f.MustBoot(5, two)
	if _, err := hold.Rollback(t.Context(), f.Publisher, n0(""), ""); err == nil || !strings.Contains(err.Error(), "rolled back already") {
		t.Errorf("a second rollback without a generation: %v", err)
	}
	must(t, ignore(hold.Rollback(t.Context(), f.Publisher, n0("20 is too much"), "1")))
	f.runs("10")
	f.MustBoot(6, one)
	f.MustPublish(f.Nodes(two, "40", "3"), publish.Options{})
	f.MustBoot(6, one)
	f.IsGreen(f.Values())
	for to, want := range map[string]string{"77": "generation 77 is not kept", "0-77": "generation 0-77 is not kept", "x": `"x" is not a generation`} {
		if _, err := hold.Rollback(t.Context(), f.Publisher, n0(""), to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rollback --to %s: %v, want %s", to, err, want)
		}
	}
	// The machine was replaced meanwhile: the node stays bound to the new one.
	must(t, ignore(hold.Forward(t.Context(), f.Publisher, n0(""))))
	moved := f.Nodes(two, "50", "3")
	doc, err := moved[0].Doc()
	must(t, err)
	moved[0].Match.MACs = []string{"52:54:00:00:00:aa"}
	moved[0].Doc = func() ([]byte, error) {
		return []byte(strings.Replace(string(doc), "52:54:00:00:00:00", "52:54:00:00:00:aa", 1)), nil
	}
	f.MustPublish(moved, publish.Options{})
	must(t, ignore(hold.Rollback(t.Context(), f.Publisher, n0(""), "0-2")))
	x, err := f.Index()
	must(t, err)
	if got := x.Nodes["n0"].Match.MACs; !slices.Equal(got, []string{"52:54:00:00:00:aa"}) {
		t.Errorf("the rolled back node is bound to %q", got)
	}
	f.IsGreen(f.Values())
}

// A rejected layer or one that is gone is not gone back to.
func TestRollbackNeedsTheLayer(t *testing.T) {
	f := fleet{fleettest.New(t)}
	one, two := f.Layer("1", "default", f.Release).Digest, f.Layer("2", "default", f.Release).Digest
	f.MustPublish(f.Nodes(one, "10"), publish.Options{})
	f.MustPublish(f.Nodes(two, "10"), publish.Options{})
	must(t, ignore(f.Refresh(t.Context(), publish.Lists{Reject: []string{one}})))
	if _, err := hold.Rollback(t.Context(), f.Publisher, n0(""), ""); err == nil || !strings.Contains(err.Error(), "reject") {
		t.Errorf("to a rejected layer: %v", err)
	}
	must(t, ignore(f.Refresh(t.Context(), publish.Lists{Allow: []string{one}})))
	must(t, os.Remove(filepath.Join(f.Registry.Ref().Layout, oci.BlobPath(one))))
	if _, err := hold.Rollback(t.Context(), f.Publisher, n0(""), ""); err == nil {
		t.Error("to a layer that is gone: no error")
	}
	f.MustBoot(2, two)
}

func TestPauseAndResume(t *testing.T) {
	f := fleet{fleettest.New(t)}
	f.MustPublish(f.Nodes("", "10", "10"), publish.Options{})
	f.MustPublish(f.Nodes("", "20", "10"), publish.Options{})
	h := n0("looking at a fan")
	h.Until = f.Now.Add(2 * time.Hour)
	must(t, ignore(hold.Pause(t.Context(), f.Publisher, h)))
	o := f.diskless().Overlay
	if o.Pause == nil || o.Pause.Reason != h.Reason || o.Pause.Until != h.Until.Unix() {
		t.Fatalf("the paused node has %+v", o.Pause)
	}
	must(t, ignore(hold.Freeze(t.Context(), f.Publisher, n0("and wait for parts")))) // beside the pause
	must(t, ignore(hold.Resume(t.Context(), f.Publisher, n0(""))))
	if o := f.diskless().Overlay; o.Pause != nil {
		t.Fatalf("the resumed node has %+v", o.Pause)
	}
	f.MustPublish(f.Nodes("", "30", "10"), publish.Options{})
	f.runs("20") // frozen still
	must(t, ignore(hold.Forward(t.Context(), f.Publisher, n0(""))))
	// A pause is not what one goes back to.
	must(t, ignore(hold.Rollback(t.Context(), f.Publisher, n0(""), "")))
	f.runs("10")
	f.IsGreen(f.Values())
}

// A hold that is over ends at the next publish, which says so.
func TestHoldsThatAreOver(t *testing.T) {
	f := fleet{fleettest.New(t)}
	f.MustPublish(f.Nodes("", "10", "10", "10"), publish.Options{})
	until := f.Now.Add(24 * time.Hour)
	must(t, ignore(hold.Freeze(t.Context(), f.Publisher, hold.Order{Nodes: []string{"n0"}, Until: until})))
	must(t, ignore(hold.Freeze(t.Context(), f.Publisher, hold.Order{Nodes: []string{"n1"}})))
	must(t, ignore(hold.Pause(t.Context(), f.Publisher, hold.Order{Nodes: []string{"n0", "n1"}, Until: until})))
	if r := f.MustPublish(f.Nodes("", "20", "20", "20"), publish.Options{}); len(r.Held) != 2 || len(r.Ended) != 0 || len(r.Published) != 1 {
		t.Fatalf("while they last: %+v", r)
	}
	f.Now = until
	r := f.MustPublish(f.Nodes("", "20", "20", "20"), publish.Options{})
	if len(r.Ended) != 2 || len(r.Ended[0].Holds) != 2 || len(r.Ended[1].Holds) != 1 || len(r.Held) != 1 || r.Held[0].Node != "n1" || len(r.Published) != 2 {
		t.Fatalf("when they are over: %+v", r)
	}
	f.runs("20")
	f.IsGreen(f.Values())
	x, err := f.Index()
	must(t, err)
	if h := x.Nodes["n1"].Holds; len(h) != 1 || h[0].Kind != spec.HoldFreeze || x.Nodes["n0"].Holds != nil {
		t.Errorf("afterwards n0 is held by %+v, n1 by %+v", x.Nodes["n0"].Holds, h)
	}
	generation := x.Generation
	if r := f.MustPublish(f.Nodes("", "20", "20", "20"), publish.Options{}); r.Generation != generation || len(r.Ended)+len(r.Published)+len(r.Resigned) != 0 {
		t.Errorf("and again: %+v", r)
	}
}

// With --all what had nothing else before stays as it is.
func TestRollbackOfAllTakesWhatCanGoBack(t *testing.T) {
	f := fleet{fleettest.New(t)}
	f.MustPublish(f.Nodes("", "10"), publish.Options{})
	f.MustPublish(f.Nodes("", "20", "1"), publish.Options{}) // n1 is new
	for _, to := range []string{"", "1"} {
		r, err := hold.Rollback(t.Context(), f.Publisher, hold.Order{All: true}, to)
		must(t, err)
		if len(r.Held) != 1 || r.Held[0].Node != "n0" || r.Unchanged != 1 {
			t.Errorf("rollback --to %q: %+v", to, r)
		}
		f.runs("10")
		must(t, ignore(hold.Forward(t.Context(), f.Publisher, hold.Order{All: true})))
	}
	if _, err := hold.Rollback(t.Context(), f.Publisher, hold.Order{Nodes: []string{"n1"}}, "1"); err == nil || !strings.Contains(err.Error(), "node n1: it was not published in generation 0-1") {
		t.Errorf("by name: %v", err)
	}
	f.IsGreen(f.Values())
}
