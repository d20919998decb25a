// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"os/exec"
	"slices"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
)

// BaseAccounts returns rows for the accounts with numbers of people that a base
// made elsewhere brings, so that [Settle] gives those numbers to nobody else. A
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
	if err != nil {
		return nil, err
	}
	return accounts.PeopleIn(text), nil
}

// Reserve adds rows of a base to a ledger. What the ledger has already stays: a
// number that is somebody's is refused where the base's account is met.
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
