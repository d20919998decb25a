// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/test/require"
)

// racks is a fleet whose racks have users, packages and settings of their own.
type racks struct {
	t        *testing.T
	rand     *rand.Rand
	dir      string
	registry *registry.Registry
	operator *ecdsa.PrivateKey
	release  *ecdsa.PrivateKey
	now      time.Time

	archive []string

	common setting
	rack   map[string]*setting
	seen   map[string]int
}

// setting is what the default says, or one rack's override. What is nil is not overridden.
type setting struct {
	users, packages []string
	purge           bool
	swappiness      int
	script          string
}

// rackNodes are the nodes by rack.
var rackNodes = map[string][]string{"a": {"a1", "a2"}, "b": {"b1"}, "c": {"c1"}}

var (
	people   = []string{"ann", "ben", "kim", "lea", "tom"}
	archive  = []string{"ant", "bee", "cat", "dog"} // each makes a system user of its name
	personal = "elk"                                // makes an account with a person's number
)

func newRacks(t *testing.T, seed uint64, seen map[string]int) *racks {
	t.Helper()
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &racks{t: t, dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 2)), registry: r, now: time.Now().UTC().Truncate(time.Second), seen: seen,
		common: setting{users: []string{"ann"}, packages: []string{"ant"}}, rack: map[string]*setting{"a": {}, "b": {}, "c": {}}}
	w.archive = archive
	if seed%2 == 1 { // from the start: who has the number keeps it from all who come later
		w.archive = append(slices.Clone(archive), personal)
		w.rack["c"].packages = []string{personal}
	}
	for _, k := range []**ecdsa.PrivateKey{&w.operator, &w.release} {
		if *k, err = sign.Generate(); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// some picks a few words.
func (w *racks) some(words []string) []string {
	out := []string{}
	for _, word := range words {
		if w.rand.IntN(3) == 0 {
			out = append(out, word)
		}
	}
	return out
}

// edit changes the default or one rack, as a person might: also to what another has.
func (w *racks) edit() {
	s := &w.common
	if w.rand.IntN(4) > 0 {
		s = w.rack[string(rune('a'+w.rand.IntN(3)))]
	}
	switch w.rand.IntN(8) {
	case 0, 1:
		s.users, s.purge = w.some(people), w.rand.IntN(4) == 0
	case 2:
		s.packages = w.some(w.archive)
	case 3:
		s.swappiness = w.rand.IntN(3)
	case 4:
		s.script = []string{"", "one", "two"}[w.rand.IntN(3)]
	case 5: // the override is taken back
		if s != &w.common {
			*s = setting{}
		}
	case 6: // what a rack tried becomes everybody's, and the rack's override may stay or go
		tried := w.rack[string(rune('a'+w.rand.IntN(3)))]
		if tried.users != nil {
			w.common.users, w.common.purge = tried.users, tried.purge
		}
		if tried.packages != nil {
			w.common.packages = tried.packages
		}
		if w.rand.IntN(2) == 0 {
			*tried = setting{}
		}
	default: // a rack keeps what everybody had, and the rest goes on
		kept := w.rack[string(rune('a'+w.rand.IntN(3)))]
		kept.users, kept.packages, kept.purge = w.common.users, w.common.packages, w.common.purge
		w.common.users = w.some(people)
	}
}

func (s *setting) conf(module string, all bool) string {
	list := func(word string, names []string) string {
		var out []string
		for _, n := range names {
			out = append(out, "{"+word+": "+n+"}")
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	switch {
	case module == "uamlite" && (all || s.users != nil):
		return fmt.Sprintf("{users: %s, purge_expired_users: %v}", list("user_name", s.users), s.purge)
	case module == "apt" && (all || s.packages != nil):
		return fmt.Sprintf("{packages: %s}", list("name", s.packages))
	case module == "sysctl" && (all || s.swappiness != 0):
		return fmt.Sprintf("{vm.swappiness: %d}", s.swappiness)
	case module == "exec" && (all || s.script != ""):
		return fmt.Sprintf("{a: {data: '#!/bin/sh %s'}}", s.script)
	}
	return ""
}

func (w *racks) site() *site.Site {
	w.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nlayer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: linux-image-amd64}}\nnodes:\n")
	for _, rack := range slices.Sorted(maps.Keys(rackNodes)) {
		for _, n := range rackNodes[rack] {
			fmt.Fprintf(&b, "  - {name: %s, labels: {rack: %s}}\n", n, rack)
		}
	}
	b.WriteString("conf:\n")
	var over strings.Builder
	for _, m := range []string{"uamlite", "apt", "sysctl", "exec"} {
		fmt.Fprintf(&b, "  %s: %s\n", m, w.common.conf(m, true))
		var labels []string
		for _, rack := range slices.Sorted(maps.Keys(w.rack)) {
			if text := w.rack[rack].conf(m, false); text != "" {
				labels = append(labels, fmt.Sprintf("{label: {key: rack, values: [%s]}, conf: {%s: %s}}", rack, m, text))
			}
		}
		if labels != nil {
			fmt.Fprintf(&over, "    divingbell_%s: {labels: [%s]}\n", m, strings.Join(labels, ", "))
		}
	}
	if over.Len() > 0 {
		b.WriteString("  overrides:\n" + over.String())
	}
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(b.String())}}, "site.yaml")
	if err := found.Err(); err != nil {
		w.t.Fatalf("%v\n%s", err, b.String())
	}
	return s
}

// make stands for [builder.Build]: its images are names of what would be in them. What
// decides about accounts is the builder's own.
func (w *racks) make(_ context.Context, recipe spec.Recipe, variant, version string, o builder.Options) (*builder.Result, error) {
	encoded, err := spec.Encode(recipe)
	if err != nil {
		return nil, err
	}
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: recipe.Fleet, Version: version, Variant: variant,
		Recipe: oci.Digest(encoded), Arch: "amd64", Created: w.now.Truncate(24 * 365 * time.Hour).Format(time.RFC3339), Kernel: spec.KernelBlob{Release: "6.12.1-amd64"}}
	var found, brought []spec.Account
	for i, p := range recipe.Packages.Install {
		l.Packages = append(l.Packages, spec.InstalledPackage{Name: p.Name, Version: "1", Arch: "amd64"})
		if p.Name == personal {
			brought = accounts.PeopleIn(personal + ":x:1000:1000::/:/bin/sh\n")
			continue
		}
		n := 101 + i // the next free number, as scripts choose it
		found = append(found, spec.Account{Name: p.Name, UID: n, GID: n, State: "system"}, spec.Account{Name: p.Name, UID: -1, GID: n, State: "system-group"})
	}
	system, err := accounts.Numbers(found, o.Ledger)
	if err != nil {
		return nil, err
	}
	present := accounts.Present(recipe.Accounts, o.Ledger)
	for _, row := range present {
		for _, other := range brought {
			if row.UID == other.UID {
				return nil, fmt.Errorf("accounts: %w", &accounts.Taken{User: row.Name, UID: row.UID, By: other.Name})
			}
		}
	}
	r := &builder.Result{Recipe: encoded, Brought: brought}
	image := func(name string, holds ...any) {
		data := fmt.Append(nil, holds...)
		blob := builder.Blob{Blob: spec.Blob{Digest: oci.Digest(data), Size: int64(len(data))}, MediaType: oci.TypeSquashfs, Title: name}
		blob.Path = filepath.Join(w.dir, digest.Hex(blob.Digest))
		if err := os.WriteFile(blob.Path, data, 0o644); err != nil {
			w.t.Fatal(err)
		}
		r.Blobs = append(r.Blobs, blob)
		l.Images = append(l.Images, spec.Image{Name: name, MediaType: oci.TypeSquashfs, Blob: blob.Blob})
	}
	image("base", recipe.Kernel)
	image("packages", "packages", l.Packages, system)
	image(spec.ImageAccounts, "accounts", present, recipe.Accounts)
	l.Accounts = append(present, system...)
	r.Layer = l
	r.Ledger, err = accounts.Remember(builder.Reserve(o.Ledger, brought), system)
	return r, err
}

// build does what the verb does, with what the verb goes on from.
func (w *racks) build(s *site.Site) {
	w.t.Helper()
	p, policy := w.publisher()
	var before release.Before
	set, err := p.Set(w.t.Context(), policy, release.Current)
	if err == nil {
		before.Layers = set.Layers
		before.Ledger, err = set.Accounts(w.t.Context(), s.Name(), policy.Release)
	}
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		w.t.Fatal(err)
	}
	built, err := release.Bake(w.t.Context(), s, release.Build{Before: before, Make: w.make})
	if err != nil {
		w.t.Fatal(err)
	}
	w.given(before.Ledger, built.Ledger)
	pusher := release.Pusher{Registry: w.registry, Release: w.release, Now: w.now}
	if _, err := pusher.PushAll(w.t.Context(), s.Name(), built.Version(), built); err != nil {
		w.t.Fatal(err)
	}
}

// given wants every number that was ever given to be that name's still, and no other's.
func (w *racks) given(before, now []spec.Account) {
	w.t.Helper()
	owner := map[int]string{}
	for _, row := range accounts.People(now) {
		if other := owner[row.UID]; other != "" && other != row.Name {
			w.t.Fatalf("number %d is %s's and %s's", row.UID, other, row.Name)
		}
		owner[row.UID] = row.Name
	}
	for _, row := range accounts.People(before) {
		if owner[row.UID] != row.Name {
			w.t.Fatalf("number %d was %s's and is %q's", row.UID, row.Name, owner[row.UID])
		}
	}
}

func (w *racks) publisher() (*publish.Publisher, published.Policy) {
	policy := published.Policy{Site: true, Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour,
		Operator: []sign.Verifier{sign.VerifierOf(w.operator)}, Release: []sign.Verifier{sign.VerifierOf(w.release)}}
	return &publish.Publisher{Reader: published.Reader{Registry: w.registry, Signers: []crypto.Signer{w.operator}, Now: w.now, Say: func(string, ...any) {}}}, policy
}

func (w *racks) plan(s *site.Site) (planned []string, p *plan.Plan) {
	w.t.Helper()
	by, policy := w.publisher()
	p, err := (Preview{Site: s, Publisher: by, Policy: policy, Layer: release.Current}).Plan(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range p.Nodes {
		if len(n.Changes) > 0 {
			planned = append(planned, n.Name)
		}
	}
	return planned, p
}

// content is what a site says of each node: all of its overlay but the layer's digest, and
// what the layer is made of.
func (w *racks) content(s *site.Site) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	variants, err := s.Variants()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range variants {
		for _, n := range v.Nodes {
			doc, err := s.Compile(n, "", "")
			if err != nil {
				w.t.Fatal(err)
			}
			out[n] = site.RecipeID(v.Recipe) + string(doc)
		}
	}
	return out
}

// publish returns the rows after it, and who was given a new overlay.
func (w *racks) publish(s *site.Site) (rows map[string]spec.Published, changed []string) {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	p, policy := w.publisher()
	nodes, err := p.Compile(w.t.Context(), s, policy, release.Current)
	if err != nil {
		w.t.Fatal(err)
	}
	result, err := p.Publish(w.t.Context(), policy, nodes, publish.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range result.Published {
		changed = append(changed, n.Node)
	}
	slices.Sort(changed)
	fleet, err := p.Read(w.t.Context(), policy)
	if err != nil {
		w.t.Fatal(err)
	}
	if rows, err = fleet.Nodes(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return rows, changed
}

// was wants what 'caisson diff' says of the last generation to be what the plan said of it
// before, class, reason and all.
func (w *racks) was(p *plan.Plan, round int) {
	w.t.Helper()
	by, policy := w.publisher()
	fleet, err := by.Read(w.t.Context(), policy)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := fleet.Generations(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if round == 0 || len(list) < 2 {
		return
	}
	i := slices.IndexFunc(list, func(g published.Generation) bool { return g.Number == fleet.Floor().Generation })
	j := slices.IndexFunc(list, func(g published.Generation) bool { return g.Number == fleet.Floor().Generation-1 })
	if i < 0 || j < 0 || !p.Changed() {
		return
	}
	found, err := history.Between(w.t.Context(), fleet, list[j], list[i], "")
	if err != nil {
		w.t.Fatal(err)
	}
	for n, planned := range p.Nodes {
		planned.AtOnce = false // what waits for what is over
		if got, want := fmt.Sprintf("%+v", found.Nodes[n]), fmt.Sprintf("%+v", planned); got != want {
			w.t.Fatalf("the plan said\n%s\nand the comparison of generations says\n%s", want, got)
		}
		w.seen["the class "+planned.Class]++
	}
}

// TestAChangeConcernsItsNodes edits a site at random, builds and publishes. A node whose
// configuration and recipe are as they were keeps its generation, its overlay and its
// layer, whatever comes and goes on others; and a plan before the build names the nodes
// that the publish after it changes.
func TestAChangeConcernsItsNodes(t *testing.T) { concerns(t, 0, 4) }

// TestLongAChangeConcernsItsNodes does it for more sites.
func TestLongAChangeConcernsItsNodes(t *testing.T) {
	require.Long(t)
	concerns(t, 4, 28)
}

func concerns(t *testing.T, from, to uint64) {
	require.Slow(t)
	seen := map[string]int{}
	for seed := from; seed < to; seed++ {
		w := newRacks(t, seed, seen)
		var rows map[string]spec.Published
		content := map[string]string{}
		for round := range 8 {
			for range min(round, 1) * (1 + w.rand.IntN(2)) {
				w.edit()
			}
			s := w.site()
			planned, before := w.plan(s)
			w.build(s)
			after, p := w.plan(s)
			if rows != nil && !slices.Equal(planned, after) {
				t.Fatalf("seed %d, round %d: the plan before the build has %q, the one after it %q\n%+v\n%+v", seed, round, planned, after, before, p)
			}
			now, changed := w.publish(s)
			if !slices.Equal(planned, changed) {
				t.Fatalf("seed %d, round %d: planned %q, publish changed %q\n%+v", seed, round, planned, changed, before)
			}
			w.was(p, round)
			is := w.content(s)
			for n := range is {
				a, b := rows[n], now[n]
				if is[n] != content[n] {
					seen["another"]++
					continue
				}
				seen["same"]++
				if len(changed) > 0 {
					seen["same, and others are not"]++
				}
				if a.Overlay != b.Overlay || a.Layer != b.Layer || a.Generation != b.Generation {
					t.Fatalf("seed %d, round %d: nothing of node %s differs, and it goes from overlay %s, layer %s, generation %d to %s, %s, %d", seed, round, n,
						a.Overlay, a.Layer, a.Generation, b.Overlay, b.Layer, b.Generation)
				}
			}
			rows, content = now, is
		}
	}
	t.Log(seen)
	for _, what := range []string{"same, and others are not", "another", "the class live"} {
		if seen[what] < 10 {
			t.Errorf("%s: %d nodes: it tests nothing", what, seen[what])
		}
	}
}
