// SPDX-License-Identifier: Apache-2.0

package release

import (
	"slices"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Before is what a build goes on from.
type Before struct {
	Ledger []spec.Account // whose each number is, see [Set.Accounts]
	Layers []Layer        // those that were current
}

// accounts returns who was in the layer that a variant takes the place of. A recipe that
// was built before has its own layer. Else that is the one of the variant's name. A
// variant with another recipe than any before has another name, too: its nodes had the
// default layer, or one that no node has from now on.
func (b Before) accounts(v site.Variant, all []site.Variant) (rows []spec.Account) {
	id := func(l Layer) string { return digest.Hex(l.Recipe) }
	for _, same := range []func(Layer) bool{
		func(l Layer) bool { return id(l) == site.RecipeID(v.Recipe) },
		func(l Layer) bool { return l.Variant == v.Name },
	} {
		if i := slices.IndexFunc(b.Layers, same); i >= 0 {
			return b.Layers[i].Accounts
		}
	}
	for _, l := range b.Layers {
		if l.Variant == site.DefaultVariant || !slices.ContainsFunc(all, func(v site.Variant) bool { return id(l) == site.RecipeID(v.Recipe) }) {
			rows = append(rows, l.Accounts...)
		}
	}
	return rows
}
