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
	doc, err = spec.Encode(spec.Fleet{APIVersion: spec.APIVersion, Kind: spec.KindFleet})
	if err != nil {
		t.Fatal(err)
	}
	fleet := &fleetDecision{candidate: Candidate{Document: slices.Concat(doc[:len(doc)-1], []byte(`,"rescueVersion":7}`))}}
	if err := fleetDocumentParses(fleet); err != nil {
		t.Fatal(err)
	}
	if said, err := (Rules{}).decideFleet(fleet); err != nil || !slices.Equal(said.LeftOut, []string{"rescueVersion"}) {
		t.Errorf("%+v, %v", said, err)
	}
	a, err := Rules{}.decide(&decision{leftOut: d.leftOut})
	if err != nil || !slices.Equal(a.LeftOut, d.leftOut) {
		t.Errorf("%+v, %v", a, err)
	}
}
