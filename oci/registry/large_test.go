// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
)

// TestALayoutIsNoLargerThanItIsRead: an index.json that would not be read again takes the place of none.
func TestALayoutIsNoLargerThanItIsRead(t *testing.T) {
	dir := t.TempDir()
	r, err := Open("oci:"+dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(tag string) error {
		raw, blobs := oci.OverlayManifest([]byte(`{}`))
		for _, d := range blobs {
			if err := r.PutData(t.Context(), oci.RepoNode, d); err != nil {
				return err
			}
		}
		_, err := r.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, raw, tag)
		return err
	}
	if err := put("n0"); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(dir + "/index.json")
	if err != nil {
		t.Fatal(err)
	}
	r.place.(*layout).most = int64(len(was)) + 10
	if err := put("n1"); err == nil || !strings.Contains(err.Error(), "bytes that are read again") {
		t.Errorf("%v", err)
	}
	if is, err := os.ReadFile(dir + "/index.json"); err != nil || string(is) != string(was) {
		t.Errorf("%v: %s", err, is)
	}
	r.place.(*layout).most = oci.MaxLayout
	if err := put("n1"); err != nil {
		t.Error(err)
	}
}
