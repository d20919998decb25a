// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// TestDigestIsOfOneChange: the same content in the place of something else has another digest,
// so who agreed to one has not agreed to the other.
func TestDigestIsOfOneChange(t *testing.T) {
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nnodes: [{name: a}]\n")}}, "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	of := func(from spec.Floor, content string) string {
		t.Helper()
		d, err := Digest(from, s, []publish.Node{{Name: "a", Doc: func() ([]byte, error) { return []byte(content), nil }}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := of(spec.Floor{Generation: 1}, "x")
	if of(spec.Floor{Generation: 1}, "x") != first {
		t.Error("a change has two digests")
	}
	for name, other := range map[string]string{"content": of(spec.Floor{Generation: 1}, "y"), "generation": of(spec.Floor{Generation: 2}, "x"), "epoch": of(spec.Floor{Epoch: 1, Generation: 1}, "x")} {
		if other == first {
			t.Errorf("another %s has the same digest", name)
		}
	}
}
