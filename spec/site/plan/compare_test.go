// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// Items in another order are another document; an empty list and none are not.
func TestOrderAndEmptyLists(t *testing.T) {
	overlay := func(items spec.Items) *spec.Overlay { return &spec.Overlay{Items: items} }
	a, b := spec.Sysctl{Key: "vm/a", Value: "1"}, spec.Sysctl{Key: "vm/b", Value: "1"}
	c := compareOverlays(overlay(spec.Items{Sysctl: []spec.Sysctl{a, b}}), overlay(spec.Items{Sysctl: []spec.Sysctl{b, a}}))
	if len(c) != 1 || c[0].Item != "sysctl" || c[0].Key != "order" || c[0].Class != spec.ClassLive {
		t.Errorf("another order: %+v", c)
	}
	c = compareOverlays(overlay(spec.Items{Exec: []spec.Exec{{Name: "x", Args: []string{}}}}), overlay(spec.Items{Exec: []spec.Exec{{Name: "x"}}}))
	if len(c) != 0 {
		t.Errorf("an empty list and none: %+v", c)
	}
}
