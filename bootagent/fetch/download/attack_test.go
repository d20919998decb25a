// SPDX-License-Identifier: Apache-2.0

package download

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// fetch downloads the layer of a world, as a node does that has accepted its
// overlay.
func fetch(t *testing.T, w *attack.World, store *layers.Store, checks []check) error {
	t.Helper()
	ref, err := oci.ParseRef(w.Serve(t) + "/metal-a")
	if err != nil {
		t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := trust.Layer(t.Context(), src, w.LayerDigest)
	if err != nil {
		return err
	}
	from := Download{Source: src, Repo: oci.RepoLayer, Store: store, Pause: time.Millisecond, checks: checks}
	for _, d := range layer.Manifest.Layers {
		if err := from.Blob(t.Context(), d, nil); err != nil {
			return err
		}
	}
	return nil
}

// TestNoCheckIsVacuous takes each check of this package out, and wants every row
// that names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if r.Of() == "download" {
			_, name, _ := strings.Cut(r.Check, "/")
			rows[name] = append(rows[name], r)
		}
	}
	for i, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if len(rows[c.name]) == 0 {
				t.Fatal("no attack names this check")
			}
			for _, r := range rows[c.name] {
				w, store := r.Forge(t), newStore(t)
				if err := fetch(t, w, store, nil); refusal.Of(err) != refusal.Code(r.Code) {
					t.Errorf("%s: %v, want the code %s", r.Name, err, r.Code)
				}
				if store.Has(w.ImageDigest, int64(w.ImageSize)) {
					t.Errorf("%s: the image is in the store", r.Name)
				}
				without := slices.Delete(slices.Clone(checks), i, i+1)
				if err := fetch(t, w, newStore(t), without); refusal.Of(err) == refusal.Code(r.Code) {
					t.Errorf("%s: refused as %s without the check: %v", r.Name, r.Code, err)
				}
			}
		})
		delete(rows, c.name)
	}
	for name := range rows {
		t.Errorf("attacks name the check %q, which this package does not have", name)
	}
}
