// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// The numbers of packages' accounts follow from the order in which scripts run,
// and from the ledger of the layers before. The ledger is in no step's key: then
// the first layer, which has none, could not be remembered for the second. What a
// step made is taken when its numbers are those that the ledger asks for now.

// known returns the accounts that a step must respect: the fleet's, and those that the base made.
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

// BaseAccounts returns rows for the accounts with numbers of people that a base
// made elsewhere brings, so that [Settle] gives those numbers to no other account. A
// Debian base has none.
func BaseAccounts(ctx context.Context, recipe spec.Recipe, o Options) ([]spec.Account, error) {
	if recipe.Base.Debian != nil {
		return nil, nil
	}
	if err := root.Capable(); err != nil { // before the base is fetched
		return nil, err
	}
	b := &build{options: o, recipe: recipe}
	release, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	f, err := b.openForeign(ctx)
	if err != nil {
		return nil, err
	}
	text, err := f.read(ctx, "etc/passwd")
	return accounts.PeopleIn(text), err
}

// Reserve adds rows of a base to a ledger. What the ledger has already stays: a
// number that is another account's is refused where the base's account is met.
func Reserve(ledger, base []spec.Account) []spec.Account {
	for _, row := range base {
		if !slices.ContainsFunc(ledger, func(have spec.Account) bool {
			return !accounts.IsSystem(have) && (have.Name == row.Name || have.UID == row.UID)
		}) {
			ledger = append(ledger, row)
		}
	}
	return ledger
}

// read returns a file of the tar. tar complains that one of the two spellings is
// not there, so only what it wrote counts.
func (f *foreign) read(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "tar", "--extract", "--to-stdout", "--occurrence=1", "--wildcards", "--no-wildcards-match-slash",
		"--file", f.file, name, "./"+name).Output()
	if len(out) == 0 {
		return "", fmt.Errorf("layer.base: there is no /%s in it: not a Debian system, or not a tar (%s)", name, lastSaid(err))
	}
	return string(out), nil
}
