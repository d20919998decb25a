// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/prune"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Prunes beside publishes whose blobs are all there already, unnamed and old: what
// the index names in the end is whole.
func TestPruneBesidePublishTearsNothing(t *testing.T) {
	f := newFleet(t)
	ref := f.Registry.Ref()
	f.Now = time.Now().UTC().Truncate(time.Second)
	f.MustPublish(f.Nodes("", "0", "0"), Options{})
	for round := range 10 {
		must(t, filepath.WalkDir(filepath.Join(ref.Layout, "blobs"), func(name string, d os.DirEntry, err error) error {
			old := time.Now().Add(-2 * time.Hour)
			if err == nil && !d.IsDir() {
				err = os.Chtimes(name, old, old)
			}
			return err
		}))
		var group sync.WaitGroup
		publisher, pruner := f.at(t, ref.String()), f.at(t, ref.String())
		group.Go(func() {
			if _, err := publisher.Publish(t.Context(), f.Policy, f.Nodes("", fmt.Sprint(round%2), "0"), Options{}); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := prune.Run(t.Context(), &pruner.Reader, pruner.Alone, prune.Keep{Versions: 1, Generations: 1}, false); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
	}
	batch, err := f.Registry.Batch()
	must(t, err)
	defer batch.Close() // nothing was written
	raw, err := os.ReadFile(filepath.Join(ref.Layout, "index.json"))
	must(t, err)
	list, err := oci.ParseLayoutIndex(raw)
	must(t, err)
	for _, d := range list {
		raw, err := os.ReadFile(filepath.Join(ref.Layout, oci.BlobPath(d.Digest)))
		must(t, err)
		m, err := oci.ParseManifest(raw)
		must(t, err)
		for _, b := range append(m.Layers, m.Config) {
			if _, err := os.Stat(filepath.Join(ref.Layout, oci.BlobPath(b.Digest))); err != nil {
				t.Errorf("%s leads to nothing: %v", d.Name, err)
			}
		}
	}
}

// A prune with a policy verifies first.
func TestPruneVerifies(t *testing.T) {
	f := newFleet(t)
	l := f.Layer("1", "default", f.Release)
	f.MustPublish(f.Nodes(l.Digest, "1"), Options{})
	f.Trust = &f.Policy
	if _, err := prune.Run(t.Context(), &f.Reader, f.Alone, prune.Keep{Versions: 1, Generations: 1}, false); err != nil {
		t.Fatal(err)
	}
	stranger := newFleet(t)
	f.Trust = &stranger.Policy
	if _, err := prune.Run(t.Context(), &f.Reader, f.Alone, prune.Keep{Versions: 1, Generations: 1}, false); err == nil {
		t.Error("pruned what another key signed")
	}
}

// TestPruneSparesWhatIsNeeded: what a node runs, ran before or is held at stays, and
// what a generation needs that stays.
func TestPruneSparesWhatIsNeeded(t *testing.T) {
	p := newFleet(t)
	p.Trust = &p.Policy
	current := func(version, created string) string {
		layer := p.LayerOf(version, "default", created, p.Release)
		_, err := (&release.Pusher{Registry: p.Registry, Release: p.Release, Now: p.Now}).Index(t.Context(), []oci.Descriptor{layer}, nil, "metal-a", version)
		must(t, err)
		return layer.Digest
	}
	one := current("1", "2026-10-01T00:00:00Z")
	p.MustPublish(p.Nodes(one, "10", "10"), Options{})
	p.Now = p.Now.Add(24 * time.Hour)
	two := current("2", "2026-10-20T00:00:00Z")
	p.MustPublish(p.Nodes(two, "20", "20"), Options{Epoch: 1, EpochKey: p.Top})
	p.Now = p.Now.Add(24 * time.Hour)
	three := current("3", "2026-10-30T00:00:00Z")
	p.MustPublish(p.Nodes(three, "30", "30"), Options{})
	kept := func(keep prune.Keep) (why map[string]string) {
		t.Helper()
		out, err := prune.Run(t.Context(), &p.Reader, p.Alone, keep, true)
		must(t, err)
		why = map[string]string{}
		for _, l := range out.Layers {
			why[l.Digest] = l.Keep
		}
		return why
	}
	if why := kept(prune.Keep{Versions: 1, Generations: 1}); why[one] != "" || why[two] != "node n0 before" || why[three] != "current" {
		t.Errorf("one generation: %v", why)
	}
	if why := kept(prune.Keep{Versions: 1, Generations: 3}); why[one] != "generation 0-1" {
		t.Errorf("three generations: %v", why)
	}
	if why := kept(prune.Keep{Versions: 3, Generations: 1}); why[one] == "" {
		t.Errorf("three versions: %v", why)
	}
	for _, phase := range []string{spec.RolloutRunning, spec.RolloutAborted} { // no wave with the layer began yet
		_, err := p.Advance(t.Context(), p.Policy, "r", By{}, func(_ context.Context, f *published.Fleet) (*Step, error) {
			plan := spec.RolloutPlan{APIVersion: spec.APIVersion, Kind: spec.KindRolloutPlan, Fleet: "metal-a", Name: "r", Before: f.Floor(), Layers: []string{one}}
			return &Step{Plan: &plan, Row: spec.Rollout{Phase: phase}}, nil
		})
		must(t, err)
		if why := kept(prune.Keep{Versions: 1, Generations: 1}); (why[one] == "rollout r") != (phase == spec.RolloutRunning) {
			t.Errorf("a rollout that is %s: %v", phase, why)
		}
	}
	if _, err := hold.Pin(t.Context(), p.Publisher, hold.Order{Nodes: []string{"n1"}}, one); err != nil {
		t.Fatal(err)
	}
	if why := kept(prune.Keep{Versions: 1, Generations: 1}); why[one] != "node n1" || why[two] != "node n0 before" || why[three] == "" {
		t.Errorf("a pinned node: %v", why)
	}
	// What stays is enough to go back to.
	if _, err := prune.Run(t.Context(), &p.Reader, p.Alone, prune.Keep{Versions: 1, Generations: 2}, false); err != nil {
		t.Fatal(err)
	}
	must(t, filepath.WalkDir(filepath.Join(p.Registry.Ref().Layout, "blobs"), func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			old := time.Now().Add(-2 * time.Hour)
			err = os.Chtimes(name, old, old)
		}
		return err
	}))
	// The steps of the rollout changed nothing that one goes back to, and do not count.
	if out, err := prune.Run(t.Context(), &p.Reader, p.Alone, prune.Keep{Versions: 1, Generations: 2}, false); err != nil || len(out.Generations) != 4 || out.Freed == 0 {
		t.Fatalf("once more, with a sweep: %+v, %v", out, err)
	}
	if _, err := hold.Rollback(t.Context(), p.Publisher, n0, ""); err != nil {
		t.Error(err)
	}
	if report, err := verify.Fleet(t.Context(), &p.Reader, p.Policy, nil, false); err != nil || !report.OK() {
		t.Errorf("verify: %+v, %v", report, err)
	}
}

// What another program keeps under the nodes' names is not an overlay, and stops nothing.
func TestPruneLeavesWhatIsNotAnOverlay(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "1"), Options{})
	must(t, f.Registry.PutData(t.Context(), oci.RepoNode, oci.Describe(oci.MediaTypeEmpty, oci.Empty)))
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: "application/x-other",
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}})
	if _, err := f.Registry.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, raw, "report"); err != nil {
		t.Fatal(err)
	}
	if _, err := prune.Run(t.Context(), &f.Reader, f.Alone, prune.Keep{Versions: 1, Generations: 1}, false); err != nil {
		t.Error(err)
	}
	if _, _, err := f.Registry.Manifest(t.Context(), oci.RepoNode, "report"); err != nil {
		t.Error(err)
	}
}
