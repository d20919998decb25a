// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"testing"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec/refusal"
)

// What a publish would be refused for a rehearsal is refused for, without the fleet's
// keys, and it leaves no trace.
func TestRehearse(t *testing.T) {
	f := newFleet(t)
	older := f.LayerOf("1", "default", "2026-10-01T00:00:00Z", f.Release).Digest
	newer := f.LayerOf("2", "default", "2026-10-20T00:00:00Z", f.Release).Digest
	f.MustPublish(f.Nodes(newer, "10"), Options{})
	fleet, err := f.Read(t.Context(), f.Policy)
	if err != nil {
		t.Fatal(err)
	}
	alone := f.Reader
	alone.Signers = nil // nobody is asked
	fleet = fleet.With(&alone)
	for name, c := range map[string]struct {
		layer string
		named bool
		want  refusal.Code
	}{
		"the same layer":             {newer, false, ""},
		"an older layer":             {older, false, refusal.Rollback},
		"an older layer, on purpose": {older, true, ""},
	} {
		if err := Rehearse(t.Context(), fleet, f.Nodes(c.layer, "11"), c.named); refusal.Of(err) != c.want || c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Refresh(t.Context(), Lists{Reject: []string{newer}}); err != nil {
		t.Fatal(err)
	}
	if fleet, err = f.Read(t.Context(), f.Policy); err != nil {
		t.Fatal(err)
	}
	if err := Rehearse(t.Context(), fleet, f.Nodes(newer, "11"), true); refusal.Of(err) != refusal.Rejected {
		t.Errorf("a layer on the reject list: %v", err)
	}
	if x, err := f.Index(); err != nil || x.Generation != 1 || x.Reserved {
		t.Errorf("a rehearsal left its mark: %+v, %v", x, err)
	}
}
