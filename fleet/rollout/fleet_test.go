// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// fleet is a published site, its simulated nodes, and a clock that only the test moves.
type fleet struct {
	t     testing.TB
	p     publish.Publisher
	now   time.Time
	key   *ecdsa.PrivateKey
	keys  *chain.Chain      // versions of the keys; nil is none
	root  *ecdsa.PrivateKey // of them
	rule  string            // of the site's Rollout
	on    *layered          // what nodes have a layer by; nil is attached nodes
	value string            // what the site says now

	before string // what it said in the round before
	round  int
	names  []string
	nodes  map[string]*node
	obeys  spec.Bootstrap
	slots  map[string]string // nodes that hold a slot → what
	hears  time.Time         // since when the service hears nodes; zero is always

	measure func(context.Context, spec.Analysis, time.Time) (analysis.Measured, error)
}

// node is a simulated node: it takes what it can verify, and reports what it runs.
type node struct {
	name     string
	manifest string // of what it runs
	overlay  string
	value    string // of the one setting
	floor    spec.Floor
	since    time.Time // when it took it
	taken    int       // how often it took something else

	sick   string            // the value that does it no good
	broken bool              // it says that it is
	dumb   bool              // it reports nothing any more
	silent func(string) bool // it stops reporting when it takes such a value
	waits  string            // its changes wait for this
	judges bool              // what it runs has to pass its checks
	last   report.Standing
}

func newFleet(t testing.TB, to string, n int, rule string) *fleet {
	t.Helper()
	key, err := sign.Generate()
	must(t, err)
	f := &fleet{t: t, now: time.Now().UTC().Truncate(time.Second), key: key, rule: rule, value: "1", nodes: map[string]*node{}}
	f.at(to)
	for i := range n {
		name := fmt.Sprintf("n%05d", i)
		f.names = append(f.names, name)
		f.nodes[name] = &node{name: name}
	}
	pub := string(sign.VerifierOf(key).PEM())
	f.obeys = spec.Bootstrap{Fleet: "metal", Keys: []string{pub}, Threshold: 1}
	f.publish()
	f.tick(time.Minute)
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at opens the place where the fleet is published.
func (f *fleet) at(to string) {
	f.t.Helper()
	r, err := registry.Open(to, registry.Options{PlainHTTP: true})
	must(f.t, err)
	f.p = publish.Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{f.key}, Now: f.now, Say: func(string, ...any) {}, NewFleet: true}}
}

// site is what the operators wrote, with 3 racks.
func (f *fleet) site() *site.Site {
	f.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nattached: true\nnodes:\n")
	for i, n := range f.names {
		fmt.Fprintf(&b, "  - {name: %s, labels: {rack: r%d}}\n", n, i%3)
	}
	fmt.Fprintf(&b, "conf: {sysctl: {vm.swappiness: %s}}\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: roll}\nspec: %s\n", f.value, f.rule)
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(b.String())}}, "site.yaml")
	must(f.t, found.Err())
	return s
}

func (f *fleet) policy() published.Policy {
	v, err := sign.NewVerifier(f.key.Public())
	must(f.t, err)
	policy := published.Policy{Site: true, Fleet: "metal", Operator: []sign.Verifier{v}, Threshold: 1, Lifetime: 30 * 24 * time.Hour, Chain: f.keys}
	if f.root != nil {
		policy.Root, policy.RootThreshold = []sign.Verifier{sign.VerifierOf(f.root)}, 1
	}
	if f.on != nil {
		policy.Release, policy.Attestation = []sign.Verifier{sign.VerifierOf(f.on.release)}, []sign.Verifier{sign.VerifierOf(f.on.attestation)}
	}
	return policy
}

func (f *fleet) compile() []publish.Node {
	f.t.Helper()
	nodes, err := f.p.Compile(f.t.Context(), f.site(), f.policy(), "")
	must(f.t, err)
	if f.on != nil {
		f.on.stack(f.t, nodes)
	}
	return nodes
}

func (f *fleet) publish() {
	f.t.Helper()
	f.p.Now = f.now
	_, err := f.p.Publish(f.t.Context(), f.policy(), f.compile(), publish.Options{})
	must(f.t, err)
}

// start begins the site's rollout with another value.
func (f *fleet) start(value string) (*spec.RolloutPlan, error) {
	f.t.Helper()
	plan, _, err := Start(f.t.Context(), &f.p, f.policy(), publish.By{Author: "eve"}, f.order(value))
	return plan, err
}

// order is what the site's rollout is asked for with another value.
func (f *fleet) order(value string) Order {
	f.t.Helper()
	f.value = value
	r, divide, err := f.site().Rollout("roll")
	must(f.t, err)
	f.p.Now = f.now
	return Order{Name: "roll", Rule: r.Rule, Divide: divide, Budget: r.Budget(f.site().Nodes()), Nodes: f.compile(), At: f.now}
}

// driver is a run that knows nothing of those before it.
func (f *fleet) driver() *Driver {
	return &Driver{Publisher: f.p, Policy: f.policy(), By: publish.By{Author: "ci"}, Name: "roll",
		Compile: func(context.Context, *spec.RolloutPlan) ([]publish.Node, error) { return f.compile(), nil },
		Reports: func(context.Context, report.Asked) (map[string]report.Standing, error) { return f.reports(), nil },
		Slots:   func(context.Context) (map[string]string, error) { return f.slots, nil },
		Measure: f.measure,
		Now:     func() time.Time { return f.now }, Say: f.t.(interface{ Logf(string, ...any) }).Logf}
}

func (f *fleet) reports() map[string]report.Standing {
	all := map[string]report.Standing{}
	for name, n := range f.nodes {
		if !n.last.At.IsZero() {
			r := n.last
			r.Listens = f.hears
			all[name] = r
		}
	}
	return all
}

// tick lets time pass: nodes look, take and report.
func (f *fleet) tick(d time.Duration) {
	f.t.Helper()
	f.now = f.now.Add(d)
	look := f.p
	look.Now = f.now
	fleet, err := look.Read(f.t.Context(), f.policy())
	must(f.t, err)
	rows, err := fleet.Nodes(f.t.Context())
	must(f.t, err)
	for _, name := range f.names {
		f.nodes[name].look(f, rows[name].Manifest)
	}
}

// look is what a node does every minute. The manifest saves it a request for what has
// not changed; what it takes it verifies.
func (n *node) look(f *fleet, manifest string) {
	f.t.Helper()
	if manifest != n.manifest && n.waits == "" {
		c, err := trust.Overlay(f.t.Context(), f.p.Registry.Source(), []string{n.name}, "")
		must(f.t, err)
		a, err := trust.All().Accept(c, f.obeys, trust.Identity{Node: n.name}, trust.Clock{RTC: f.now}, trust.Known{Floor: n.floor})
		if err != nil {
			f.t.Fatalf("node %s refuses what is published for it: %v", n.name, err)
		}
		if digest := oci.Digest(c.Document); digest != n.overlay {
			n.overlay, n.value, n.since = digest, a.Overlay.Items.Sysctl[0].Value, f.now
			n.taken++
		}
		n.manifest, n.floor = manifest, a.Floor
		if n.silent != nil && n.silent(n.value) {
			n.dumb = true
		}
	}
	if n.dumb {
		return
	}
	n.last = report.Standing{At: f.now, Overlay: n.overlay, Well: n.since, Waiting: n.waits}
	if n.judges {
		n.last.Well = f.now.Add(1)
	}
	if n.broken {
		n.last.Trouble, n.last.Broken, n.last.Well = "broken", true, time.Time{}
	}
	if n.value == n.sick && n.sick != "" {
		n.last.Trouble, n.last.Well = "sysctl vm.swappiness: invalid argument", time.Time{}
	}
}

// run drives until there is nothing more to do by itself, a minute at a time.
func (f *fleet) run() error {
	f.t.Helper()
	for range 3000 {
		moved, _, err := f.driver().Step(f.t.Context())
		if err != nil {
			f.tick(time.Minute)
			return err
		}
		if !moved {
			f.tick(time.Minute)
		}
	}
	f.t.Fatal("the rollout does not end")
	return nil
}

// leaves runs to an end that leaves nodes out, which says so.
func (f *fleet) leaves(what string) {
	f.t.Helper()
	if err := f.run(); !errors.Is(err, ErrLeftOut) || !strings.Contains(err.Error(), what) {
		f.t.Fatalf("ended with %v, want %q", err, what)
	}
}

// steps looks so often, and lets a minute pass where there was nothing to do.
func (f *fleet) steps(looks int) {
	f.t.Helper()
	for range looks {
		moved, _, err := f.driver().Step(f.t.Context())
		must(f.t, err)
		if !moved {
			f.tick(time.Minute)
		}
	}
}

// reach goes on until so many waves have begun.
func (f *fleet) reach(waves int) {
	f.t.Helper()
	for range 1000 {
		if len(f.row().Waves) >= waves {
			return
		}
		f.steps(1)
	}
	f.t.Fatalf("%d waves have not begun: %+v", waves, f.row())
}

func (f *fleet) row() spec.Rollout {
	f.t.Helper()
	look := f.p
	look.Now = f.now
	fleet, err := look.Read(f.t.Context(), f.policy())
	must(f.t, err)
	return fleet.Rollouts()["roll"]
}

// values counts what the nodes run.
func (f *fleet) values() map[string]int {
	all := map[string]int{}
	for _, n := range f.nodes {
		all[n.value]++
	}
	return all
}

func (f *fleet) want(values map[string]int) {
	f.t.Helper()
	if got := f.values(); !maps.Equal(got, values) {
		f.t.Errorf("nodes run %v, want %v", got, values)
	}
}

func (f *fleet) do(verb Verb) {
	f.t.Helper()
	must(f.t, f.try(verb))
}

func (f *fleet) try(verb Verb) error {
	f.p.Now = f.now
	policy := f.policy()
	policy.Site = false // as with keys alone
	_, err := verb.Do(f.t.Context(), &f.p, policy, publish.By{Author: "eve", Reason: "because"}, "roll")
	return err
}
