// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// What a rollout that was cut gave a node stays, whatever is published next, and is what
// the node's row says; it can be gone back from. What else its tag may lead to is put right:
// what is older than its row, newer than what was given out, or of another publish.
func TestTakeUp(t *testing.T) {
	rollout := &spec.FleetChange{Verb: "rollout racks wave 1"}
	for name, c := range map[string]struct {
		doing *spec.FleetChange
		given uint64
		old   bool // the tag leads to what n0 had in generation 1, once more
		want  string
	}{
		"a rollout":             {doing: rollout, given: 2, want: "cut"},
		"never given out":       {doing: rollout, given: 9, want: "10"},
		"a hold":                {doing: &spec.FleetChange{Verb: "pin"}, given: 2, want: "10"},
		"of nobody who says it": {given: 2, want: "10"},
		"put back by somebody":  {doing: rollout, given: 2, old: true, want: "11"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.MustPublish(f.Nodes("", "10", "10"), Options{})
			first, _, err := f.Registry.Manifest(t.Context(), oci.RepoNode, "n0")
			must(t, err)
			f.cutDoing(c.doing, c.given)
			if c.old {
				f.MustPublish(f.Nodes("", "11", "11"), Options{})
				v, err := f.Open(t.Context(), f.Policy, published.Purpose{})
				must(t, err)
				f.Now = f.Now.Add(time.Minute)
				reserved := v.State().Index.Root
				reserved.Generation, reserved.Doing = 4, c.doing
				must(t, PutReserved(f.Run(v), t.Context(), f.Policy.Lifetime, reserved))
				_, err = f.Registry.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, first, "n0")
				must(t, err)
			}
			f.Now = f.Now.Add(time.Second)
			r, err := hold.Freeze(t.Context(), f.Publisher, hold.Order{By: By{Reason: "x"}, Nodes: []string{"n1"}})
			must(t, err)
			if len(r.Published) != 1 || r.Published[0].Node != "n0" || len(r.Held) != 1 {
				t.Errorf("%+v", r)
			}
			f.Trust = &f.Policy
			fleet, err := f.Look(t.Context())
			must(t, err)
			if o, err := fleet.Overlay(t.Context(), "n0"); err != nil || o.Items.Sysctl[0].Value != c.want {
				t.Errorf("the node's row says %+v, %v; want %s", o, err, c.want)
			}
			if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
				t.Errorf("%+v", bad)
			}
			if c.want != "cut" {
				return
			}
			if _, err := hold.Rollback(t.Context(), f.Publisher, hold.Order{By: By{Reason: "x"}, Nodes: []string{"n0"}}, ""); err != nil {
				t.Fatal(err)
			}
			if a, err := f.Boot(); err != nil || a.Overlay.Items.Sysctl[0].Value != "10" {
				t.Errorf("after a rollback: %+v, %v", a, err)
			}
		})
	}
}

// Who only looks sees the state before a publish that is at work or was cut, and is told.
func TestReadersOfACutPublish(t *testing.T) {
	for verb, want := range map[string]string{"publish": "a publish of generation 2 was cut: run 'caisson publish' again",
		"pin": "a pin of generation 2 was cut: run 'caisson pin' again, or 'caisson refresh'", published.VerbMend: "a publish of generation 2 was cut: run 'caisson publish' again",
		"refresh":              "a refresh of generation 2 was cut: run 'caisson refresh' again, which gives its nodes back what they had",
		"rollout racks wave 1": "rollout racks wave 1 was cut, generation 2: 'caisson rollout run' again"} {
		f := newFleet(t)
		f.MustPublish(f.Nodes("", "10", "10"), Options{})
		f.cutDoing(&spec.FleetChange{Verb: verb}, 2)
		f.Trust = &f.Policy
		fleet, err := f.Look(t.Context())
		must(t, err)
		if text, err := fleet.Unfinished(t.Context()); err != nil || !strings.Contains(text, want) {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
		rows, err := fleet.Nodes(t.Context())
		must(t, err)
		list, err := fleet.Generations(t.Context())
		must(t, err)
		if rows["n0"].Generation != 1 || !slices.Equal(list, []published.Generation{{Number: 1}}) {
			t.Errorf("%+v, %v", rows["n0"], list)
		}
		f.MustPublish(f.Nodes("", "10", "10"), Options{})
		fleet, err = f.Look(t.Context())
		must(t, err)
		if text, err := fleet.Unfinished(t.Context()); err != nil || text != "" {
			t.Errorf("when it is done: %q, %v", text, err)
		}
	}
}
