// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// What an overlay of a later release has that this one leaves out can be said.
func TestLeftOut(t *testing.T) {
	doc, err := spec.Encode(spec.Overlay{Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}})
	if err != nil {
		t.Fatal(err)
	}
	later := slices.Concat(doc[:len(doc)-len(`}]}}`)], []byte(`,"onlyIf":"x"}]}}`))
	d := &decision{candidate: Candidate{Document: later}}
	if err := sectionsParse(d); err != nil || !slices.Equal(d.leftOut, []string{"items.sysctl[].onlyIf"}) {
		t.Errorf("left out %q, %v, of %s", d.leftOut, err, later)
	}
	a, err := Rules{}.decide(&decision{leftOut: d.leftOut})
	if err != nil || !slices.Equal(a.LeftOut, d.leftOut) {
		t.Errorf("%+v, %v", a, err)
	}
}
