// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
)

// TestIntentGolden: the reservation that 0.9.0 wrote is read, and written byte-equal.
func TestIntentGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/intent.json")
	if err != nil {
		t.Fatal(err)
	}
	i := intent{epoch: 1, generation: 7, at: time.Unix(1800000000, 0).UTC(), nonce: "0123456789abcdef"}
	if made := i.manifest(announcement{By: "ann@example.org", Reserves: 8}, 3); !bytes.Equal(made, golden) {
		t.Errorf("written otherwise:\n%s", made)
	}
	if read, ok := parseIntent("intent-1-7-1800000000-0123456789abcdef"); !ok || read != i || i.tag() != "intent-1-7-1800000000-0123456789abcdef" {
		t.Errorf("%+v, %v, tag %s", read, ok, i.tag())
	}
	f := newFleet(t)
	if _, err := f.Registry.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, golden, i.tag()); err != nil {
		t.Fatal(err)
	}
	if s, err := f.readIntent(t.Context(), i); err != nil || !s.isRenewed || s.Reserves != 8 || s.By != "ann@example.org" {
		t.Errorf("%+v, %v", s, err)
	}
}
