// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/module"
)

// beside are what a node does that no author writes below conf: of a layer, and of sections of
// the overlay.
var beside = []string{"accounts", "service", "secrets"}

// A kind of items is a field of the overlay and one row of each half: of the contract, of
// its author and of the node. CONTRIBUTING.md names these places.
func TestKindIsOneRowOfEachTable(t *testing.T) {
	count := map[string][4]int{}
	add := func(table int, kind string) {
		n := count[kind]
		n[table]++
		count[kind] = n
	}
	for _, e := range spec.Effects {
		if kind, ok := strings.CutPrefix(e.Part, "items."); ok {
			add(0, kind)
		}
	}
	for _, i := range items.Table(spec.Items{}, items.Options{}) {
		if !slices.Contains(beside, i.Name()) {
			add(2, i.Name())
		}
	}
	fields := reflect.VisibleFields(reflect.TypeFor[spec.Items]())
	for _, f := range fields {
		kind, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		add(3, kind)
		for _, m := range module.Conf() {
			if m.Writes(kind) {
				add(1, kind)
			}
		}
	}
	for kind, n := range count {
		if n != [4]int{1, 1, 1, 1} {
			t.Errorf("%s is %d rows of spec, %d of module.All, %d of items.Table and %d of spec.Items", kind, n[0], n[1], n[2], n[3])
		}
	}
	if len(count) != len(fields) {
		t.Errorf("%d kinds of %d are counted", len(fields), len(count))
	}
}
