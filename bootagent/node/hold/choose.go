// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/record/state"
)

// A Choice is one of the generations that a node ran well, the newest first; nil where none
// is meant.
type Choice func(kept []state.Generation, now state.Generation) *state.Generation

// Earlier chooses the one before the one that runs.
func Earlier(kept []state.Generation, now state.Generation) *state.Generation {
	return first(kept, func(g state.Generation) bool { return decide.Older(g, now) && g.Overlay != now.Overlay })
}

// Numbered chooses the one of a number.
func Numbered(generation uint64) Choice {
	return func(kept []state.Generation, _ state.Generation) *state.Generation {
		return first(kept, func(g state.Generation) bool { return g.Generation == generation })
	}
}

func first(kept []state.Generation, meant func(state.Generation) bool) *state.Generation {
	i := slices.IndexFunc(kept, meant)
	if i < 0 {
		return nil
	}
	return &kept[i]
}

// NotKept is for a choice that this node does not have, with the generations that it has.
type NotKept []state.Generation

func (NotKept) Error() string { return "this node keeps no such generation" }

// Hint says which ones there are.
func (k NotKept) Hint() string {
	var list []string
	for _, g := range k {
		list = append(list, fmt.Sprint(g.Generation))
	}
	return "it keeps " + strings.Join(list, ", ") + "; 'caisson rollback' gives a node any other"
}
