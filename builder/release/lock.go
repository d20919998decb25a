// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// LockedVariant holds the changes by the archives in one variant.
type LockedVariant struct {
	Variant string                  `json:"variant"`
	Changes []builder.PackageChange `json:"changes"`
	Keys    []builder.KeyChange     `json:"keys,omitempty"`

	Advisories *advisory.Change `json:"advisories,omitempty"` // absent where no file of them was given
}

// Differs reports whether the archives have something else than the older lock.
func (v LockedVariant) Differs() bool { return len(v.Changes) > 0 || len(v.Keys) > 0 }

// Locking says how a lock is made.
type Locking struct {
	Cache   string // the builder's
	Missing bool   // of a variant whose recipe the older lock is of, that is taken over

	Advise func(old, next builder.Lock) *advisory.Change // nil for no word on advisories
}

// Lock resolves every package of a site's variants and compares them with an
// older lock, nil when there is none.
func Lock(ctx context.Context, s *site.Site, old *builder.LockFile, how Locking) (*builder.LockFile, []LockedVariant, error) {
	variants, err := s.Variants()
	if err != nil {
		return nil, nil, err
	}
	if old == nil {
		old = &builder.LockFile{}
	}
	dir, err := filepath.Abs(s.Dir()) // apt takes no relative keyring
	if err != nil {
		return nil, nil, err
	}
	var others []builder.Lock
	for _, name := range slices.Sorted(maps.Keys(old.Variants)) {
		others = append(others, old.Variants[name])
	}
	fresh := &builder.LockFile{APIVersion: spec.APIVersion, Kind: builder.LockKind, Variants: map[string]builder.Lock{}}
	var changes []LockedVariant
	for _, v := range variants {
		if own, locked := old.Variants[v.Name]; how.Missing && locked && own.Of(v.Recipe) {
			fresh.Variants[v.Name] = own
			continue
		}
		l, err := builder.Resolve(ctx, v.Recipe, builder.Options{CacheDir: how.Cache, SiteDir: dir, OpenOCI: OpenBase(v.Recipe.Arch)})
		if err != nil {
			return nil, nil, written(s, fmt.Errorf("variant %s: %w", v.Name, err))
		}
		own := old.Variants[v.Name]
		if i := slices.IndexFunc(others, func(o builder.Lock) bool { return o.Recipe == l.Recipe }); own.Recipe != l.Recipe && i >= 0 {
			own = others[i] // a variant of the same packages: it has another name for its users' sake, say
		}
		l.Follow(own, others...)
		fresh.Variants[v.Name] = l
		change := LockedVariant{Variant: v.Name, Changes: builder.CompareLocks(own, l), Keys: builder.CompareKeys(own, l)}
		if how.Advise != nil {
			change.Advisories = how.Advise(own, l)
		}
		changes = append(changes, change)
	}
	return fresh, changes, nil
}

// Write prints the packages that would be added, removed or upgraded, and their number.
func (v LockedVariant) Write(w io.Writer) {
	var added, removed, changed int
	var bytes int64
	for _, c := range v.Changes {
		bytes += c.Bytes
		switch {
		case c.From == "":
			added++
			cli.Printf(w, "+ %s %s (%s)\n", c.Name, c.To, signedSize(c.Bytes))
		case c.To == "":
			removed++
			cli.Printf(w, "- %s %s (%s)\n", c.Name, c.From, signedSize(c.Bytes))
		default:
			changed++
			cli.Printf(w, "  %s %s → %s (%s)\n", c.Name, c.From, c.To, signedSize(c.Bytes))
		}
	}
	for _, c := range v.Keys {
		cli.Printf(w, "! archive %s is signed by %s, before by %s\n", c.Archive, strings.Join(c.To, ", "), strings.Join(c.From, ", "))
	}
	if v.Advisories != nil {
		v.Advisories.Write(w)
	}
	cli.Printf(w, "%s: %d added, %d removed, %d changed, %s\n", v.Variant, added, removed, changed, signedSize(bytes))
}

func signedSize(n int64) string {
	switch {
	case n > -1e6 && n < 1e6:
		return fmt.Sprintf("%+.1f kB", float64(n)/1e3)
	default:
		return fmt.Sprintf("%+.1f MB", float64(n)/1e6)
	}
}
