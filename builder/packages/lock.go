// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Lock names every package file that one variant is built from. It holds paths
// below archives, never the archives' own addresses: those are each build host's.
type Lock struct {
	Recipe   string        `json:"recipe"` // sha256 of the parts of the recipe that were resolved
	Releases []apt.Release `json:"releases"`
	BaseDate string        `json:"baseDate"` // RFC 3339: of the newest index when Base was last changed
	Base     []apt.Deb     `json:"base"`
	Packages []apt.Deb     `json:"packages"`
	Tools    []apt.Deb     `json:"tools,omitempty"` // what modules are made with, above Packages and in no layer

	// SignedBy names the keys that signed the indexes when the packages were last resolved; locks
	// of before lack it.
	SignedBy apt.Signers `json:"signedBy,omitempty"`
}

// LockFile is the file beside the site: a lock for each variant.
type LockFile struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Variants   map[string]Lock `json:"variants"`
}

// For returns the lock of a variant, an empty one where the file has none, and those of the
// others in the order of their names. Without a file there is nothing to be held to.
func (l *LockFile) For(variant string) (own *Lock, others []Lock) {
	if l == nil {
		return nil, nil
	}
	its := l.Variants[variant]
	return &its, l.All()
}

// All returns the locks in the order of the names of their variants.
func (l *LockFile) All() []Lock {
	return plain.Each(slices.Sorted(maps.Keys(l.Variants)), func(name string) Lock { return l.Variants[name] })
}

// LockKind is the kind of a [LockFile].
const LockKind = "LayerLock"

// Epoch is the date of the newest index: no file of the layer is younger.
func (l *Lock) Epoch() (time.Time, error) {
	var newest time.Time
	for _, r := range l.Releases {
		t, err := time.Parse(time.RFC3339, r.Date)
		if err != nil {
			return newest, fmt.Errorf("lock: release %s: %w", r.Suite, err)
		}
		if t.After(newest) {
			newest = t
		}
	}
	if newest.IsZero() {
		return newest, errors.New("lock: it names no release, so it has no date")
	}
	return newest, nil
}

// BaseEpoch is the date of every image but that of the packages.
func (l *Lock) BaseEpoch() (time.Time, error) {
	t, err := time.Parse(time.RFC3339, l.BaseDate)
	if err != nil {
		return t, fmt.Errorf("lock: baseDate: %w", err)
	}
	newest, err := l.Epoch()
	if err == nil && t.After(newest) {
		err = fmt.Errorf("lock: baseDate %s is after the newest release", l.BaseDate)
	}
	return t, err
}

// LockKey hashes the parts of a recipe that decide which packages are chosen; of a base that is not
// bootstrapped here the digest is one of them.
func LockKey(r spec.Recipe, foreign string) string {
	p := r.Packages
	for i, pkg := range p.Install {
		if len(pkg.Debconf) > 0 {
			p.Install = append([]spec.Package{}, p.Install...)
			p.Install[i].Debconf = nil // answers choose nothing
		}
	}
	from := r.Base
	if from.Debian != nil {
		d := *from.Debian
		d.Mirror, d.Security, d.Keyring = "", "", "" // another mirror of the same archive
		d.Documentation = false                      // of the same packages
		from.Debian = &d
	}
	key := map[string]any{"arch": r.Arch, "base": from, "names": append(slices.Clone(base.Include), r.Kernel), "packages": p}
	if foreign != "" {
		key["base"] = foreign
	}
	data, _ := json.Marshal(key) // strings, and lists of them
	return digest.Of(data)
}

// Of reports whether the lock is of a recipe as it is now. One whose base is a file or an
// image is taken to be: what is in it is not looked at.
func (l *Lock) Of(r spec.Recipe) bool {
	return r.Base.Debian == nil || l.Recipe == LockKey(r, "")
}

// Has reports whether each package is in the lock, as the same file.
func (l *Lock) Has(packages []spec.InstalledPackage) bool {
	all := sums(slices.Concat(l.Base, l.Packages))
	return !slices.ContainsFunc(packages, func(p spec.InstalledPackage) bool { return !slices.Contains(all, p.SHA256) })
}

// With returns the lock of a recipe that has some packages, by name, as another lock has them.
func (l Lock) With(other Lock, some []string, r spec.Recipe) Lock {
	mix := func(mine, theirs []apt.Deb) []apt.Deb {
		in := func(d apt.Deb) bool { return slices.Contains(some, d.Name) }
		all := slices.Concat(slices.DeleteFunc(slices.Clone(mine), in),
			slices.DeleteFunc(slices.Clone(theirs), func(d apt.Deb) bool { return !in(d) }))
		slices.SortStableFunc(all, func(a, b apt.Deb) int { return strings.Compare(a.Name, b.Name) })
		return all
	}
	l.Base, l.Packages, l.Tools = mix(l.Base, other.Base), mix(l.Packages, other.Packages), mix(l.Tools, other.Tools)
	l.Releases, l.BaseDate = slices.Concat(l.Releases, other.Releases), max(l.BaseDate, other.BaseDate)
	l.SignedBy = slices.Concat(l.SignedBy, other.SignedBy)
	l.Recipe = LockKey(r, "")
	return l
}

// Follow takes over from the locks before what did not change: archives are
// published again every day, and a new date alone would make every image new. own
// is the variant's lock, others are the other variants', whose base it may share.
func (l *Lock) Follow(own Lock, others ...Lock) {
	for _, old := range append([]Lock{own}, others...) {
		if old.BaseDate != "" && slices.Equal(sums(l.Base), sums(old.Base)) {
			l.BaseDate = old.BaseDate
			break
		}
	}
	if own.BaseDate != "" && l.Recipe == own.Recipe && slices.Equal(sums(l.Base), sums(own.Base)) &&
		slices.Equal(sums(l.Packages), sums(own.Packages)) && slices.Equal(sums(l.Tools), sums(own.Tools)) {
		l.Releases = own.Releases
	}
}

func sums(debs []apt.Deb) []string {
	return plain.Each(debs, func(d apt.Deb) string { return d.SHA256 })
}

// lockCap is more than any lock has: 10,000 packages are 3 MB.
const lockCap = 64 << 20

// ReadLock reads a lock file; a missing one is nil and no error.
func ReadLock(name string) (*LockFile, error) {
	data, err := ownfiles.ReadPublic(name, lockCap)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read lock: %w", err)
	}
	var l LockFile
	if err := spec.DecodeFile(data, LockKind, &l); err != nil {
		return nil, fmt.Errorf("read lock %s: %w", name, err)
	}
	return &l, nil
}

// Write replaces the lock file name.
func (l *LockFile) Write(name string) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(name, append(data, '\n'), 0o644)
}

// PackageChange is one package that two locks disagree about. From is empty for
// an added package, To for a removed one.
type PackageChange struct {
	Name  string `json:"name"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Bytes int64  `json:"bytes"` // of package files: how much more there is
}

// CompareLocks lists what changes from old to new, sorted by name.
func CompareLocks(old, new Lock) []PackageChange {
	type pair struct{ from, to *apt.Deb }
	all := map[string]*pair{}
	final := func(l Lock, set func(*pair, *apt.Deb)) {
		// What the packages step fetches replaces what the base had.
		for _, list := range [][]apt.Deb{l.Base, l.Packages, l.Tools} {
			for i := range list {
				if all[list[i].Name] == nil {
					all[list[i].Name] = &pair{}
				}
				set(all[list[i].Name], &list[i])
			}
		}
	}
	final(old, func(p *pair, d *apt.Deb) { p.from = d })
	final(new, func(p *pair, d *apt.Deb) { p.to = d })
	changes := []PackageChange{}
	for name, p := range all {
		c := PackageChange{Name: name}
		if p.from != nil {
			c.From, c.Bytes = p.from.Version, -p.from.Size
		}
		if p.to != nil {
			c.To, c.Bytes = p.to.Version, c.Bytes+p.to.Size
		}
		if p.from == nil || p.to == nil || p.from.SHA256 != p.to.SHA256 {
			changes = append(changes, c)
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Name < changes[j].Name })
	return changes
}

// KeyChange is an archive that other keys sign than an older lock says: none of them is the same.
type KeyChange struct {
	Archive string   `json:"archive"`
	From    []string `json:"from"` // fingerprints
	To      []string `json:"to"`
}

// CompareKeys lists the archives of new that no key of old signs any more, sorted.
func CompareKeys(old, new Lock) []KeyChange {
	return plain.Pick(new.SignedBy, func(now apt.Signer) (KeyChange, bool) {
		from := old.SignedBy.Of(now.Archive)
		return KeyChange{now.Archive, from, now.Keys}, len(from) > 0 && !apt.Agree(from, now.Keys)
	})
}

// LockedVariant holds the changes by the archives in one variant.
type LockedVariant struct {
	Variant string          `json:"variant"`
	Changes []PackageChange `json:"changes"`
	Keys    []KeyChange     `json:"keys,omitempty"`

	Advisories *advisory.Change `json:"advisories,omitempty"` // absent where no file of them was given
}

// Differs reports whether the archives have something else than the older lock.
func (v LockedVariant) Differs() bool { return len(v.Changes) > 0 || len(v.Keys) > 0 }

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
