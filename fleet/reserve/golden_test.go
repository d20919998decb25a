// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
)

// TestIntentGolden: the reservation that 0.9.0 wrote is read, and written byte-equal.
func TestIntentGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/intent.json")
	if err != nil {
		t.Fatal(err)
	}
	i := Intent{Epoch: 1, Generation: 7, At: time.Unix(1800000000, 0).UTC(), Nonce: "0123456789abcdef"}
	if made := i.manifest(Announcement{By: "ann@example.org", Reserves: 8}, 3); !bytes.Equal(made, golden) {
		t.Errorf("written otherwise:\n%s", made)
	}
	if read, ok := Parse("intent-1-7-1800000000-0123456789abcdef"); !ok || read != i || i.Tag() != "intent-1-7-1800000000-0123456789abcdef" {
		t.Errorf("%+v, %v, tag %s", read, ok, i.Tag())
	}
	at, err := registry.Open(registrytest.Distribution(t)+"/metal-a", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reserver{Registry: at, Now: i.At, Say: t.Logf, Pace: Usual}
	if err := at.PutData(t.Context(), oci.RepoFleet, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		t.Fatal(err)
	}
	if _, err := at.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, golden, i.Tag()); err != nil {
		t.Fatal(err)
	}
	if s, err := r.read(t.Context(), i); err != nil || !s.Renewed || s.Reserves != 8 || s.By != "ann@example.org" {
		t.Errorf("%+v, %v", s, err)
	}
}
