// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
)

// Prunes beside publishes whose blobs are all there already, unnamed and old: what
// the index names in the end is whole.
func TestPruneBesidePublishTearsNothing(t *testing.T) {
	f := newFleet(t)
	ref := f.Registry.Ref()
	f.Now = time.Now().UTC().Truncate(time.Second)
	f.publish(f.nodes("", "0", "0"), Options{})
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
			if _, err := publisher.Publish(t.Context(), f.policy, f.nodes("", fmt.Sprint(round%2), "0"), Options{}); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := pruner.Prune(t.Context(), Keep{1, 1}, false); err != nil {
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
	index, err := oci.ParseLayoutIndex(raw)
	must(t, err)
	for _, d := range index.Manifests {
		raw, err := os.ReadFile(filepath.Join(ref.Layout, oci.BlobPath(d.Digest)))
		must(t, err)
		m, err := oci.ParseManifest(raw)
		must(t, err)
		for _, b := range append(m.Layers, m.Config) {
			if _, err := os.Stat(filepath.Join(ref.Layout, oci.BlobPath(b.Digest))); err != nil {
				t.Errorf("%s leads to nothing: %v", d.Annotations[oci.AnnotationRefName], err)
			}
		}
	}
}

// A prune with a policy verifies first.
func TestPruneVerifies(t *testing.T) {
	f := newFleet(t)
	l := f.layer("1", "default", f.release)
	f.publish(f.nodes(l.Digest, "1"), Options{})
	f.Trust = &f.policy
	if _, err := f.Prune(t.Context(), Keep{1, 1}, false); err != nil {
		t.Fatal(err)
	}
	stranger := newFleet(t)
	f.Trust = &stranger.policy
	if _, err := f.Prune(t.Context(), Keep{1, 1}, false); err == nil {
		t.Error("pruned what another key signed")
	}
}
