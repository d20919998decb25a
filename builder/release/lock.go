// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
)

// Locking says how a lock is made.
type Locking struct {
	Cache   string // the builder's
	Missing bool   // of a variant whose recipe the older lock is of, that is taken over

	Advise func(old, next packages.Lock) *advisory.Change // nil for no word on advisories
}

// Lock resolves every package of a site's variants and compares them with an
// older lock, nil when there is none.
func Lock(ctx context.Context, s *site.Site, old *packages.LockFile, how Locking) (*packages.LockFile, []packages.LockedVariant, error) {
	variants, err := s.Variants()
	if err != nil {
		return nil, nil, err
	}
	old = cmp.Or(old, &packages.LockFile{})
	dir, err := filepath.Abs(s.Dir()) // apt takes no relative keyring
	if err != nil {
		return nil, nil, err
	}
	others := old.All()
	fresh := &packages.LockFile{APIVersion: spec.APIVersion, Kind: packages.LockKind, Variants: map[string]packages.Lock{}}
	var changes []packages.LockedVariant
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
		if i := slices.IndexFunc(others, func(o packages.Lock) bool { return o.Recipe == l.Recipe }); own.Recipe != l.Recipe && i >= 0 {
			own = others[i] // a variant of the same packages: it has another name for its users' sake, say
		}
		l.Follow(own, others...)
		fresh.Variants[v.Name] = l
		change := packages.LockedVariant{Variant: v.Name, Changes: packages.CompareLocks(own, l), Keys: packages.CompareKeys(own, l)}
		if how.Advise != nil {
			change.Advisories = how.Advise(own, l)
		}
		changes = append(changes, change)
	}
	return fresh, changes, nil
}

// PredicateLayers is the type of the statement that an index is the newest.
const PredicateLayers = "https://caisson.dev/layers/v1"

// Set holds the layers that a reference leads to. None of it is verified yet.
type Set struct {
	Index  string // digest; "" when the reference names one layer's manifest
	Layers []Layer

	ledger   string // digest; "" where Index is
	registry *registry.Registry
}

// MaxSkew is how far ahead of a reader's clock a [Statement] may be dated.
const MaxSkew = 5 * time.Minute

// Statement says that an index was made current by a release key. Tags move at
// anybody's will who can push; a statement has a date, so that an older one is
// seen to be older.
type Statement struct {
	Fleet    string    `json:"fleet"`
	Version  string    `json:"version"`
	IssuedAt time.Time `json:"issuedAt"`
}

// Statement returns the newest statement about the set's index by one of the keys.
func (s *Set) Statement(ctx context.Context, keys []sign.Verifier) (Statement, error) {
	var newest Statement
	verdict := error(refusal.New(refusal.Unsigned, "no release key says that this index is current"))
	if s.Index == "" {
		return newest, verdict
	}
	_, err := eachBundle(ctx, s.registry, s.Index, oci.MaxBundle, func(bundle []byte) bool {
		var one Statement
		if err := sign.VerifyPredicate(bundle, s.Index, PredicateLayers, keys, &one); err != nil {
			verdict = err
			return false
		}
		if one.IssuedAt.After(newest.IssuedAt) {
			newest = one
		}
		return false // there may be newer ones
	})
	if !newest.IssuedAt.IsZero() {
		return newest, nil
	}
	return newest, cmp.Or(err, verdict)
}

// after returns the time of issue of what takes the place of an index: now, and later
// than what it stands for and than what was seen before. Two builds of one second would
// else look like one that is played back.
func (p *Pusher) after(ctx context.Context, was string) time.Time {
	newest, latest := p.Seen, p.Now.Add(MaxSkew)
	keys := p.Trusted
	if pub, err := sign.NewVerifier(p.Release.Public()); err == nil {
		keys = append(slices.Clone(keys), pub)
	}
	if was != "" {
		if s, err := (&Set{Index: was, registry: p.Registry}).Statement(ctx, keys); err == nil && s.IssuedAt.After(newest) {
			newest = s.IssuedAt
		}
	}
	if newest.Before(p.Now) || newest.After(latest) { // nobody takes what is dated later
		return p.Now
	}
	return newest.Add(time.Second)
}

// state signs that an index is current, unless it is already and a key says so.
func (p *Pusher) state(ctx context.Context, raw []byte, was string, s Statement) error {
	digest := oci.Digest(raw)
	pub, err := sign.NewVerifier(p.Release.Public())
	if err == nil && was == digest {
		if _, err := (&Set{Index: digest, registry: p.Registry}).Statement(ctx, []sign.Verifier{pub}); err == nil {
			return nil
		}
	}
	return s.attach(ctx, p.Registry, raw, p.Release, p.Now)
}

// attach signs the statement and attaches it to its index.
func (s Statement) attach(ctx context.Context, r *registry.Registry, index []byte, by crypto.Signer, now time.Time) error {
	predicate, err := json.Marshal(s)
	if err != nil {
		return err
	}
	bundle, err := sign.Attest(by, oci.Digest(index), PredicateLayers, predicate)
	if err != nil {
		return err
	}
	return Attach(ctx, r, oci.Describe(oci.MediaTypeIndex, index), Bundle{bundle, PredicateLayers, now})
}

// address is an artifact as other tools name it, REPOSITORY:TAG or REPOSITORY@DIGEST.
var address = regexp.MustCompile(`^(.+)/(` + oci.RepoLayer + `|` + oci.RepoNode + `|` + oci.RepoFleet + `)[:@]([^/]+)$`)

// ParseName splits what names layers into a place and a tag or digest: REF for those
// that are current, REF@VERSION, REF@sha256:DIGEST, or as other tools have it
// REF/layer:VERSION and REF/layer@sha256:DIGEST.
func ParseName(name string) (ref, reference string, err error) {
	if part := address.FindStringSubmatch(name); part != nil {
		if part[2] != oci.RepoLayer {
			return "", "", cli.Usage("a layer is REF, REF@VERSION or REF/layer:VERSION; 'caisson verify "+part[1]+
				" --node NAME' looks at a node's overlay", "%q is not a layer", name)
		}
		return part[1], part[3], nil
	}
	if i := strings.LastIndexByte(name, '@'); i >= 0 && !strings.ContainsRune(name[i:], '/') {
		return name[:i], name[i+1:], nil
	}
	return name, Current, nil
}
