// SPDX-License-Identifier: Apache-2.0

package bootdisk

import (
	"io"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/fixture"
)

// TestEachMediumForItsBlob: a part of a loader is read from the medium that has it, whatever
// lies before it.
func TestEachMediumForItsBlob(t *testing.T) {
	disk, stick := fixture.NewFleet(t), fixture.NewFleet(t)
	d := oci.Describe(oci.TypeUKI, []byte("a loader"))
	if err := stick.Registry.PutData(t.Context(), oci.RepoLoader, d); err != nil {
		t.Fatal(err)
	}
	d = d.Bare()
	layouts := []string{disk.Registry.Ref().Layout, t.TempDir(), stick.Registry.Ref().Layout}
	body, err := carriedBy(t.Context(), layouts, nil, d)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close() // only read
	if data, err := io.ReadAll(body); err != nil || string(data) != "a loader" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := carriedBy(t.Context(), layouts[:2], nil, d); err == nil {
		t.Error("a part that no medium has was read")
	}
}
