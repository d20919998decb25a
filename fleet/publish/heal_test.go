// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"testing"
)

// An index does not grow with what a change moves: of more nodes than it names all tags are read.
func TestManyMovesAreNotNamed(t *testing.T) {
	r := &Run{torn: map[string]bool{"n0": true}, Plan: &Plan{}}
	if got := r.moves(); !slices.Equal(got, []string{"n0"}) {
		t.Errorf("what was torn before is not named: %v", got)
	}
	r.torn = nil
	if got := r.moves(); got == nil || len(got) > 0 {
		t.Errorf("a change that moves nothing: %#v, want an empty list", got)
	}
	for i := range maxMoves + 1 {
		r.Plan.Todo = append(r.Plan.Todo, Work{Node: Node{Name: fmt.Sprint(i)}})
	}
	if got := r.moves(); got != nil {
		t.Errorf("%d names", len(got))
	}
}
