// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// A fleet:current of a later release is read, and what was left out is said; it is not
// written again, which would lose that.
func TestCurrentOfALaterRelease(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10"), Options{})
	was, err := published.Document(t.Context(), f.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet)
	if err != nil {
		t.Fatal(err)
	}
	f.Now = f.Now.Add(time.Minute)
	later := addLaterKey(was.Document)
	if _, err := PutFleet(f.Publisher, t.Context(), "metal-a", Statement(later, []string{"current"}, oci.TypeFleet, sign.PredicateFleet, FreshFor)); err != nil {
		t.Fatal(err)
	}
	report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false)
	if err != nil || !report.OK() || !strings.Contains(report.Findings[0].Detail, spec.LeftOut([]string{"laterKey"})) {
		t.Errorf("%+v, %v", report, err)
	}
	_, err = f.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{})
	if refusal.Of(err) != refusal.NeedsAgent || !strings.Contains(err.Error(), "laterKey") {
		t.Errorf("it was written again: %v", err)
	}
	if now, err := published.Document(t.Context(), f.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet); err != nil || string(now.Document) != string(later) {
		t.Errorf("%s, %v", now.Document, err)
	}
}

// An index, and a shard, of a later release is refused by all who read it, and stays as it is.
func TestIndexOfALaterRelease(t *testing.T) {
	for _, what := range []string{"index", "shard"} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t)
			f.MustPublish(f.Nodes("", "10"), Options{})
			was, err := published.Document(t.Context(), f.Registry.Source(), "index", oci.TypeFleetIndex, 1<<20)
			must(t, err)
			later := addLaterKey(was.Document)
			if what == "shard" {
				var root spec.FleetIndex
				must(t, spec.Decode(was.Document, &root))
				manifest, err := f.Registry.Source().Manifest(t.Context(), oci.RepoNode, root.Shards[0].Manifest, "")
				must(t, err)
				shard, _, err := oci.ReadDocument(t.Context(), f.Registry.Source(), manifest, oci.Artifact{Repo: oci.RepoNode, Type: oci.TypeFleetShard, Limit: 1 << 20})
				must(t, err)
				doc := oci.Describe(oci.TypeFleetShard, addLaterKey(shard))
				must(t, f.Registry.PutData(t.Context(), oci.RepoNode, doc))
				root.Shards[0].Manifest, err = PutShardManifest(f.Publisher, t.Context(), doc.Bare(), nil)
				must(t, err)
				later, err = spec.Encode(root)
				must(t, err)
			}
			f.Now = f.Now.Add(time.Minute)
			_, err = PutFleet(f.Publisher, t.Context(), "metal-a", Statement(later, []string{"index"}, oci.TypeFleetIndex, sign.PredicateIndex, f.Policy.Lifetime))
			must(t, err)
			report, err := verify.Fleet(t.Context(), &f.Reader, f.Policy, nil, false)
			if err == nil && report.OK() {
				t.Errorf("it is read: %+v", report)
			}
			_, err = f.Publish(t.Context(), f.Policy, f.Nodes("", "20"), Options{})
			if refusal.Of(err) != refusal.Overlay || !strings.Contains(err.Error(), "laterKey") || !strings.Contains(cli.HintOf(err), "later one") {
				t.Errorf("it was written again: %v", err)
			}
			if now, err := published.Document(t.Context(), f.Registry.Source(), "index", oci.TypeFleetIndex, 1<<20); err != nil || string(now.Document) != string(later) {
				t.Errorf("%s, %v", now.Document, err)
			}
		})
	}
}

// A plan of a later release is carried out by no driver of this one.
func TestPlanOfALaterRelease(t *testing.T) {
	f := newFleet(t)
	raw, err := spec.Encode(spec.RolloutPlan{APIVersion: spec.APIVersion, Kind: spec.KindRolloutPlan, Fleet: "metal-a", Name: "r"})
	must(t, err)
	digest, err := PutFleetDocument(f.Publisher, t.Context(), "metal-a", Statement(addLaterKey(raw), []string{PlanTag("r")}, oci.TypeRollout, sign.PredicateRollout, PlanLife))
	must(t, err)
	if _, err := published.ReadPlan(t.Context(), f.Registry.Source(), "metal-a", "r", spec.Rollout{Plan: digest}); err == nil || !strings.Contains(err.Error(), "laterKey") || cli.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

// addLaterKey returns a document with a key that no release knows.
func addLaterKey(document []byte) []byte {
	return slices.Concat(document[:len(document)-1], []byte(`,"laterKey":7}`))
}
