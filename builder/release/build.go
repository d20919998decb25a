// SPDX-License-Identifier: Apache-2.0

// Package release is the system layer as an artifact: what a build makes is
// pushed, signed, described, found again, compared and removed here.
//
// A layer is one manifest for each variant of a site. An index lists the
// variants of one version; the tag "current" names the newest index. The
// manifest's config is the description ([spec.Layer]); signatures, SBOM and
// provenance are referrers of the manifest. [Read] and [Open] are the one place
// that walks from a reference to descriptions.
//
// It is not the builder, which makes the images and never sees a registry, and
// it is not a node, which reads layers through package trust. It knows nothing
// of overlays and fleets: that is fleet/publish. Programs that build and publish
// may import it, the agent never.
package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Build says how the variants of a site are built.
type Build struct {
	Options builder.Options   // those that all variants share
	Agents  map[string]string // the agent of each architecture; Options.Agent where it is not here
	Locks   *packages.LockFile
	Before  Before
	Node    string // the variant of this node alone is built; "" builds all

	// Make builds one variant, nil is [builder.Build].
	Make func(ctx context.Context, recipe spec.Recipe, variant, version string, o builder.Options) (*builder.Result, error)
}

// Built holds the results of [Bake] for a site.
type Built struct {
	Variants []site.Variant
	Results  []*builder.Result // of each variant
	Ledger   []spec.Account    // the fleet's
}

// Agents finds the agents for the layers of a site by architecture: those that are named, or beside this
// program or on PATH where none is.
func Agents(s *site.Site, named []string) (map[string]string, error) {
	variants, err := s.Variants()
	if err != nil {
		return nil, err
	}
	found, dir := map[string]string{}, ""
	if self, err := os.Executable(); err == nil { // else there is PATH
		dir = filepath.Dir(self)
	}
	for _, v := range variants {
		if found[v.Recipe.Arch], err = boot.FindAgent(named, dir, v.Recipe.Arch); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Bake builds the variants of a site, in the order of s.Variants.
func Bake(ctx context.Context, s *site.Site, b Build) (*Built, error) {
	variants, err := s.Variants()
	if err != nil {
		return nil, err
	}
	if b.Node != "" {
		variants = slices.DeleteFunc(variants, func(v site.Variant) bool { return !slices.Contains(v.Nodes, b.Node) })
	}
	siteDir, err := filepath.Abs(s.Dir()) // apt takes no relative keyring
	if err != nil {
		return nil, err
	}
	b.Options.SiteDir, b.Options.Private = siteDir, s.Layer().PrivateKeys()
	if b.Make == nil {
		b.Make = builder.Build
	}
	known := slices.Clone(b.Before.Ledger)
	for _, v := range variants {
		o := b.Options
		o.OpenOCI = OpenBase(v.Recipe.Arch)
		base, err := builder.BaseAccounts(ctx, v.Recipe, o)
		if err != nil {
			return nil, written(s, fmt.Errorf("build variant %s: %w", v.Name, err))
		}
		known = builder.Reserve(known, base)
	}
	for {
		built, err := b.all(ctx, s, variants, known)
		row, ok := b.displaces(built, err, variants)
		if !ok {
			if err != nil {
				return nil, err
			}
			return built, sameNumbers(b.Before.Ledger, built.Ledger)
		}
		reserved := builder.Reserve(known, []spec.Account{row})
		if len(reserved) == len(known) {
			return nil, err // it cannot be reserved: another has the name or the number
		}
		known = reserved
		b.Options.Note("number %d is that of %s, which the base or a package made: a user who is new gets another", row.UID, row.Name)
	}
}

// all builds the variants with the numbers that follow from a ledger. It returns what it
// has when a variant cannot be built.
func (b Build) all(ctx context.Context, s *site.Site, variants []site.Variant, known []spec.Account) (*Built, error) {
	built := &Built{Variants: variants}
	var err error
	if built.Ledger, err = builder.Settle(plain.Each(variants, func(v site.Variant) spec.Recipe { return v.Recipe }), known); err != nil {
		return built, err
	}
	if err := sameNumbers(b.Before.Ledger, built.Ledger); err != nil {
		return built, err
	}
	for _, v := range variants {
		o := b.Options
		o.Ledger, o.OpenOCI = accounts.Leave(built.Ledger, b.Before.accounts(v, variants)), OpenBase(v.Recipe.Arch)
		if o.Progress != nil {
			o.Progress = func(e builder.Event) { e.Variant = v.Name; b.Options.Progress(e) }
		}
		o.Agent = cmp.Or(b.Agents[v.Recipe.Arch], o.Agent)
		o.Written = WrittenOver(s.TextsOn(v.Nodes))
		o.Lock, o.Shared = b.Locks.For(v.Name)
		r, err := b.Make(ctx, v.Recipe, v.Name, "", o)
		if err != nil && ctx.Err() != nil { // the error may be a child's: the signal goes to all of us
			return built, errors.New("interrupted; nothing was pushed, and finished steps are cached")
		}
		if errors.As(err, new(*configcheck.Refused)) { // it names its place
			return built, err
		}
		if err != nil {
			return built, written(s, fmt.Errorf("build variant %s: %w", v.Name, err))
		}
		built.Results = append(built.Results, r)
		if built.Ledger, err = builder.Learn(built.Ledger, r); err != nil {
			return built, err
		}
	}
	return built, nil
}

// WrittenOver returns the texts that nodes write over their layer.
func WrittenOver(all [][]site.Text) [][]builder.Text {
	return plain.Each(all, func(set []site.Text) []builder.Text {
		return plain.Each(set, func(t site.Text) builder.Text { return builder.Text(t) })
	})
}

// displaces returns the row of an account, of those that the base or a package made, that
// has the number of a user who is new and did not ask for it: there the user gives way. It
// is met by the layer that has both, or seen afterwards, where another layer has the user.
func (b Build) displaces(built *Built, err error, variants []site.Variant) (spec.Account, bool) {
	switch taken, is := errors.AsType[*accounts.Taken](err); {
	case is:
		return taken.Row(), b.isNew(taken.User, variants)
	case err != nil:
		return spec.Account{}, false
	}
	for _, r := range built.Results {
		for _, row := range r.Brought {
			for _, user := range accounts.People(built.Ledger) {
				if user.UID == row.UID && user.Name != row.Name && b.isNew(user.Name, variants) {
					return row, true
				}
			}
		}
	}
	return spec.Account{}, false
}

// isNew reports whether a user had no number before, and asks for none.
func (b Build) isNew(user string, variants []site.Variant) bool {
	had := slices.ContainsFunc(accounts.People(b.Before.Ledger), func(row spec.Account) bool { return row.Name == user })
	return !had && !slices.ContainsFunc(variants, func(v site.Variant) bool {
		return slices.ContainsFunc(v.Recipe.Accounts.Users, func(u spec.User) bool { return u.Name == user && u.UID != 0 })
	})
}

// Version derives a version from the built layers: the same layers and the same ledger have
// the same version, on every machine.
func (b *Built) Version() string {
	all, _ := spec.Encode(ledger{Accounts: b.Ledger}) // a struct of plain values always encodes
	created := ""
	for _, r := range b.Results {
		data, _ := spec.Encode(r.Layer) // likewise
		all = append(all, data...)
		created = max(created, r.Layer.Created)
	}
	date, err := time.Parse(time.RFC3339, created)
	if err != nil {
		return oci.Digest(all)[7:19]
	}
	return date.Format("20060102") + "-" + oci.Digest(all)[7:15]
}
