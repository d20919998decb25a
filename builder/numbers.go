// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
)

// The numbers of packages' accounts follow from the order in which scripts run,
// and from the ledger of the layers before. The ledger is in no step's key: then
// the first layer, which has none, could not be remembered for the second. What a
// step made is taken when its numbers are those that the ledger asks for now.

// ledger is what a step must respect: the fleet's, and what the base made.
func (b *build) known(step string) ([]spec.Account, error) {
	if step == stepBase {
		return b.options.Ledger, nil
	}
	return accounts.Remember(b.options.Ledger, b.done[stepBase].Facts.System)
}

// Learn adds to the fleet's ledger what a layer brought, for the layers that are built
// after it.
func Learn(ledger []spec.Account, r *Result) ([]spec.Account, error) {
	return accounts.Remember(Reserve(ledger, r.Brought), r.Ledger)
}

// number gives the accounts in the tree of a step the ledger's numbers.
func (b *build) number(step string, r *root.Root, f *facts) error {
	known, err := b.known(step)
	if err != nil {
		return err
	}
	if f.Found, err = accounts.System(r); err != nil {
		return err
	}
	if f.System, err = accounts.Numbers(f.Found, known); err != nil {
		return err
	}
	return accounts.Renumber(r, f.Found, f.System)
}

// numbering tells results of one step that differ in numbers apart: nothing, or
// "-" and a hash.
func (f facts) numbering() string {
	if slices.Equal(f.Found, f.System) {
		return ""
	}
	data, _ := json.Marshal(f.System) // plain values always encode
	return "-" + digest.Of(data)[7:15]
}

// remembered finds what an earlier build made under key, with the right numbers.
func (b *build) remembered(step, dir, key string) (*made, error) {
	found, err := filepath.Glob(dir + "*")
	if err != nil {
		return nil, err
	}
	for _, dir := range found {
		m, err := b.cached(step, dir, key)
		if err != nil {
			return nil, err
		}
		switch {
		case m == nil:
			continue
		case m.Facts.Found == nil:
			return m, nil
		}
		known, err := b.known(step)
		if err != nil {
			return nil, err
		}
		if now, err := accounts.Numbers(m.Facts.Found, known); err != nil {
			return nil, err
		} else if slices.Equal(now, m.Facts.System) {
			return m, nil
		}
	}
	return nil, nil
}
