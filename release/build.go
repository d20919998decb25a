// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Build says how the variants of a site are built.
type Build struct {
	Options builder.Options // those that all variants share
	Locks   *builder.LockFile
	Known   []spec.Account // the account ledger to go on with
}

// Bake builds every variant of a site, in the order of s.Variants.
func Bake(ctx context.Context, s *site.Site, b Build) ([]*builder.Result, error) {
	variants, err := s.Variants()
	if err != nil {
		return nil, err
	}
	siteDir, err := filepath.Abs(s.Dir()) // apt takes no relative keyring
	if err != nil {
		return nil, err
	}
	var recipes []spec.Recipe
	known := slices.Clone(b.Known)
	for _, v := range variants {
		recipes = append(recipes, v.Recipe)
		o := b.Options
		o.SiteDir, o.OpenOCI = siteDir, OpenBase(v.Recipe.Arch)
		base, err := builder.BaseAccounts(ctx, v.Recipe, o)
		if err != nil {
			return nil, written(s, fmt.Errorf("build variant %s: %w", v.Name, err))
		}
		known = builder.Reserve(known, base)
	}
	ledger, err := builder.Settle(recipes, known)
	if err != nil {
		return nil, err
	}
	if err := sameNumbers(b.Known, ledger); err != nil {
		return nil, err
	}
	var results []*builder.Result
	for _, v := range variants {
		o := b.Options
		o.SiteDir, o.Ledger, o.OpenOCI = siteDir, ledger, OpenBase(v.Recipe.Arch)
		if o.Progress != nil {
			o.Progress = func(e builder.Event) { e.Variant = v.Name; b.Options.Progress(e) }
		}
		if b.Locks != nil {
			l, ok := b.Locks.Variants[v.Name]
			if !ok {
				return nil, cli.WithHint(fmt.Errorf("the lock has no variant %q", v.Name), "run 'caisson lock --update' and look at what changes")
			}
			o.Lock = &l
		}
		r, err := builder.Build(ctx, v.Recipe, v.Name, "", o)
		if err != nil && ctx.Err() != nil { // the error may be a child's: the signal goes to all of us
			return nil, errors.New("interrupted; nothing was pushed, and finished steps are cached")
		}
		if err != nil {
			return nil, written(s, fmt.Errorf("build variant %s: %w", v.Name, err))
		}
		results = append(results, r)
		if ledger, err = builder.Learn(ledger, r.Layer); err != nil {
			return nil, err
		}
	}
	for _, r := range results { // each knows all, or a second build would change the descriptions of the first
		if r.Layer.Accounts, err = builder.Learn(r.Layer.Accounts, spec.Layer{Accounts: ledger}); err != nil {
			return nil, err
		}
		if err := sameNumbers(b.Known, r.Layer.Accounts); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// Version derives a version from what was built: the same layers have the same
// version, on every machine.
func Version(results []*builder.Result) string {
	var all []byte
	created := ""
	for _, r := range results {
		data, _ := spec.Encode(r.Layer) // a struct of plain values always encodes
		all = append(all, data...)
		created = max(created, r.Layer.Created)
	}
	date, err := time.Parse(time.RFC3339, created)
	if err != nil {
		return oci.Digest(all)[7:19]
	}
	return date.Format("20060102") + "-" + oci.Digest(all)[7:15]
}

// Accounts merges the account ledgers of layers. Two numbers of one name are
// refused: files would change hands.
func Accounts(layers []Layer) ([]spec.Account, error) {
	var all []spec.Account
	for _, l := range layers {
		if err := sameNumbers(all, l.Accounts); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
		all = append(all, l.Accounts...)
	}
	return all, nil
}

// sameNumbers refuses an account whose number is not the known one.
func sameNumbers(known, now []spec.Account) error {
	type name struct {
		name  string
		group bool
	}
	numbers := map[name]spec.Account{}
	for _, a := range known {
		numbers[name{a.Name, a.UID < 0}] = a
	}
	for _, a := range now {
		if was, ok := numbers[name{a.Name, a.UID < 0}]; ok && (was.UID != a.UID || was.GID != a.GID) {
			return refusal.New(refusal.Contradiction, "account %q has numbers %d and %d, it had %d and %d", a.Name, a.UID, a.GID, was.UID, was.GID)
		}
	}
	return nil
}
