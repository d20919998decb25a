// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/watch"
	"github.com/caisson-os/caisson/spec"
)

// Every kind has its row in the table of what tells of it, but for the kinds that
// nothing could tell of.
func TestEveryKindIsWatched(t *testing.T) {
	for _, i := range items.Table(spec.Items{}, items.Options{}) {
		if silent := i.Name() == "exec"; silent != (watch.Sources(i.Name()) == nil) {
			t.Errorf("%s: hints from %v", i.Name(), watch.Sources(i.Name()))
		}
	}
}
