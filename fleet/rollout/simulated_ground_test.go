// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// ground is what all runs of a simulation start from: a published fleet in racks, all of whose
// nodes have reported. Two rollouts divide its nodes and share their budget.
type ground struct {
	nodes  int
	ill    bool // in each run something comes over nodes, a whole rack among them
	rule   spec.RolloutRule
	budget *spec.RolloutBudget
	divide func(takes func(string) bool) []waves.Wave

	names     []string
	operator  *ecdsa.PrivateKey
	keys      map[string]*ecdsa.PrivateKey // by node
	old, next []publish.Node               // before the rollouts, and behind them

	puts  []put
	blobs map[string][]byte
	had   map[string]string // by node: the digest of its overlay
	db    string            // file of the service
}

// begins is the time of the simulation's clock at first.
var begins = time.Unix(1_900_000_000, 0).UTC()

// newGround publishes a fleet of n nodes in racks of a size.
func newGround(t testing.TB, n, rack int, spec string) *ground {
	t.Helper()
	g := &ground{nodes: n, keys: map[string]*ecdsa.PrivateKey{}}
	g.operator = newKey(t)
	for i := range n {
		name := fmt.Sprintf("n%05d", i)
		g.names, g.keys[name] = append(g.names, name), newKey(t)
	}
	was, is := g.site(t, rack, spec, "1"), g.site(t, rack, spec, "2")
	r, divide, err := is.Rollout("a")
	must(t, err)
	g.rule, g.divide, g.budget = r.Rule, divide, r.Budget(is.Nodes())

	w := &world{TB: t, ground: g, seed: 1}
	w.open()
	defer w.close()
	p := w.publisher("operator")
	p.NewFleet = true
	g.old, err = p.Compile(t.Context(), was, g.policy(t), "")
	must(t, err)
	g.next, err = p.Compile(t.Context(), is, g.policy(t), "")
	must(t, err)
	_, err = p.Publish(t.Context(), g.policy(t), g.old, publish.Options{})
	must(t, err)
	w.service.start()
	w.tick(0)
	w.service.stop()
	g.puts, g.blobs, g.db, g.had = w.registry.puts, maps.Clone(w.registry.blobs.data), w.service.file, map[string]string{}
	for name, list := range w.registry.had {
		g.had[name] = list[len(list)-1]
	}
	return g
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := sign.Generate()
	must(t, err)
	return key
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (g *ground) site(t testing.TB, rack int, rule, value string) *site.Site {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nattached: true\nnodes:\n")
	for i, n := range g.names {
		fmt.Fprintf(&b, "  - {name: %s, labels: {rack: r%d}}\n", n, i/rack)
	}
	fmt.Fprintf(&b, "conf: {sysctl: {vm.swappiness: %s}}\n", value)
	for _, name := range sides {
		fmt.Fprintf(&b, "---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: %s}\nspec: %s\n", name, rule)
	}
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(b.String())}}, "site.yaml")
	must(t, found.Err())
	return s
}

func (g *ground) policy(t testing.TB) published.Policy {
	t.Helper()
	v, err := sign.NewVerifier(g.operator.Public())
	must(t, err)
	return published.Policy{Site: true, Fleet: "metal", Operator: []sign.Verifier{v}, Threshold: 1, Lifetime: 30 * 24 * time.Hour}
}

// sides names the two rollouts: every second node belongs to each.
var sides = []string{"a", "b"}

// order is what one of the rollouts is asked for.
func (g *ground) order(name string, now time.Time) rollout.Order {
	return rollout.Order{Name: name, Rule: g.rule, Divide: g.divide, Budget: g.budget, Nodes: g.compiled(name), At: now}
}

// compiled is the site with what one of the rollouts brings.
func (g *ground) compiled(name string) []publish.Node {
	nodes := make([]publish.Node, g.nodes)
	for i := range nodes {
		nodes[i] = g.old[i]
		if sides[i%len(sides)] == name {
			nodes[i] = g.next[i]
		}
	}
	return nodes
}

// publisher is one of those who change the fleet, by name: requests to the registry have it.
func (w *world) publisher(who string) *publish.Publisher {
	w.Helper()
	r, err := registry.Open(w.registry.at+"/metal", registry.Options{PlainHTTP: true, UserAgent: who})
	must(w, err)
	return &publish.Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{w.operator}, Now: w.now(), Say: func(string, ...any) {}},
		Clock: w.now, Author: who}
}

// observing is who looks and is not cut.
func (w *world) observing() *publish.Publisher {
	w.Helper()
	if w.looks == nil {
		w.looks = w.publisher("observer")
		w.looks.Kept = &published.Shards{}
	}
	return w.looks
}

// read reads what is published, as somebody who is not cut.
func (w *world) read() *published.Fleet {
	w.Helper()
	p := *w.observing()
	p.Now = w.now()
	f, err := p.Read(w.Context(), w.policy(w))
	must(w, err)
	return f
}

// database returns where the service keeps what it heard, as it was when the run began.
func (w *world) database() string {
	w.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "caisson-simulated-") // removed with the test
	if err != nil {
		dir = w.TempDir()
	}
	w.Cleanup(func() { _ = os.RemoveAll(dir) }) // of a test
	if w.db != "" {
		must(w, copyFile(w.db, filepath.Join(dir, "fleet.db")))
	}
	return filepath.Join(dir, "fleet.db")
}

// errTaken ends a step that would wait for another publisher: the clock stands still meanwhile.
var errTaken = errors.New("another publisher is at work")

// impatient has a publisher give up where it would wait.
func impatient(p *publish.Publisher, ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	p.Say = func(format string, _ ...any) {
		if strings.HasPrefix(format, "waits for ") {
			cancel(errTaken)
		}
	}
	return ctx
}
