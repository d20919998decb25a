// SPDX-License-Identifier: Apache-2.0

package rotate

import (
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fleettest"
	"github.com/caisson-os/caisson/test/require"
)

// machine is what a node of the model is. What nobody can see of it from outside it may be in
// any way: it is lost where it is lost in one of them.
type machine struct {
	name    string
	follows bool // the agent of its layer does follow the keys
	chained bool // its boot files begin a chain, of any version; else they have the keys of one
	told    bool // the fleet's service has a report of it; without one it is taken for chained
	disk    bool // it keeps the versions that it took; else its boot files are all that it begins with
}

// world is a fleet that has got to some version of the keys by random rotations.
type world struct {
	*rotated
	rng      *rand.Rand
	pool     []*ecdsa.PrivateKey // of operators
	releases []*ecdsa.PrivateKey
	epochs   []*ecdsa.PrivateKey
	roots    []*ecdsa.PrivateKey
	machines []machine
	layers   map[string]string // of each machine
	value    int
}

func (w *world) flip(of int) bool { return w.rng.IntN(of) == 0 }

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{rotated: newRotated(t, "", nil), rng: rand.New(rand.NewPCG(seed, 1)), layers: map[string]string{}, value: 10}
	w.pool, w.releases, w.epochs, w.roots = []*ecdsa.PrivateKey{w.Operator, w.fresh, newKey(t)}, []*ecdsa.PrivateKey{w.Release}, []*ecdsa.PrivateKey{w.Top}, []*ecdsa.PrivateKey{w.root}
	old, now := w.Layer("1", "", w.Release).Digest, w.following("2")
	all := w.flip(2) // a fleet of today
	for i := range 3 {
		m := machine{name: fmt.Sprintf("n%d", i), follows: all || w.flip(2), chained: !w.flip(4), told: w.flip(2), disk: w.flip(2)}
		w.machines = append(w.machines, m)
		if w.layers[m.name] = old; m.follows {
			w.layers[m.name] = now
		}
	}
	o := publish.Options{LayerNamed: true}
	if w.flip(3) {
		o.Epoch, o.EpochKey = 1, w.Top
	}
	must(t, w.publishAll(o))
	w.hold()
	return w
}

// hold has some nodes keep what they have.
func (w *world) hold() {
	w.T.Helper()
	if w.flip(2) {
		_, err := hold.Freeze(w.T.Context(), w.Publisher, hold.Order{Nodes: []string{"n1"}})
		must(w.T, err)
	}
	if w.flip(2) {
		_, err := hold.Pin(w.T.Context(), w.Publisher, hold.Order{Nodes: []string{"n2"}}, w.layers["n0"])
		must(w.T, err)
		w.layers["n2"], w.machines[2].follows = w.layers["n0"], w.machines[0].follows
	}
}

// goesOn ends all holds and gives each node something new: what is lost by then is lost.
func (w *world) goesOn() {
	w.T.Helper()
	_, err := hold.Forward(w.T.Context(), w.Publisher, hold.Order{All: true})
	must(w.T, err)
	must(w.T, w.publishAll(publish.Options{}))
}

// publishAll gives each node that is not held another value.
func (w *world) publishAll(o publish.Options) error {
	w.Now = w.Now.Add(time.Minute)
	w.value++
	var nodes []publish.Node
	for i, m := range w.machines {
		values := []string{"", "", ""}
		values[i] = fmt.Sprint(w.value)
		nodes = append(nodes, w.Nodes(w.layers[m.name], values...)[i])
	}
	o.LayerNamed = true
	_, err := w.Publish(w.T.Context(), w.Policy, nodes, o)
	return err
}

// draw makes up a rotation, and who signs.
func (w *world) draw() (next published.Policy, r Rotation, by []crypto.Signer) {
	next = w.Policy
	r = Rotation{Root: []crypto.Signer{w.roots[len(w.roots)-1]}, Known: w.reports(), Next: spec.Keys{At: fleettest.Start, Revoked: slices.Clone(w.Policy.Chain.Newest().Keys.Revoked)}}
	free := slices.DeleteFunc(append([]*ecdsa.PrivateKey{newKey(w.T)}, w.pool...), func(k *ecdsa.PrivateKey) bool {
		return slices.Contains(r.Next.Revoked, sign.VerifierOf(k).ID())
	})
	w.rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	next.Operator = nil
	for _, k := range free[:1+w.rng.IntN(min(2, len(free)))] {
		next.Operator = append(next.Operator, sign.VerifierOf(k))
	}
	if w.flip(2) { // most rotations leave some as they are
		next.Operator = w.Policy.Operator
		if w.flip(2) {
			next.Operator = append(slices.Clone(next.Operator), sign.VerifierOf(newKeyOf(w, &free)))
		}
	}
	next.Threshold = 1 + w.rng.IntN(min(2, len(next.Operator)))
	for _, k := range free {
		if !slices.Contains(w.pool, k) {
			w.pool = append(w.pool, k)
		}
	}
	for _, k := range w.pool {
		_, is := sign.Find(next.Operator, k.Public())
		_, was := sign.Find(w.Policy.Operator, k.Public())
		if (is && !w.flip(8) || was && w.flip(2)) && !slices.Contains(by, crypto.Signer(k)) {
			by = append(by, k)
		}
	}
	if w.flip(3) {
		k := newKey(w.T)
		next.Release = []sign.Verifier{sign.VerifierOf(k)}
		if !w.flip(4) {
			r.Release = k
		}
	}
	if w.flip(4) {
		k := newKey(w.T)
		next.Epoch = []sign.Verifier{sign.VerifierOf(k)}
		if !w.flip(4) {
			r.Epoch = k
		}
	}
	if w.flip(4) {
		k := newKey(w.T)
		next.Root = []sign.Verifier{sign.VerifierOf(k)}
		w.roots = append(w.roots, k)
		if !w.flip(4) {
			r.Root = append(r.Root, k)
		}
	}
	r.Next.Roles = next.Roles()
	if w.flip(3) {
		changes, err := published.CompareRoles(w.Policy.Chain.Newest().Keys.Roles, r.Next.Roles)
		must(w.T, err)
		for _, c := range changes {
			r.Next.Revoked = append(r.Next.Revoked, c.Removed...)
		}
		slices.Sort(r.Next.Revoked)
	}
	return next, r, by
}

func newKeyOf(w *world, free *[]*ecdsa.PrivateKey) *ecdsa.PrivateKey {
	k := newKey(w.T)
	*free = append(*free, k)
	return k
}

// reports is what the fleet's service tells of the machines: nodes know any version.
func (w *world) reports() map[string]*spec.KeysKnown {
	known := map[string]*spec.KeysKnown{}
	for _, m := range w.machines {
		switch {
		case !m.told:
		case m.follows && m.chained:
			n := 1 + w.rng.Uint64N(w.Policy.Chain.Version())
			known[m.name] = &spec.KeysKnown{Version: n, BootFiles: n, Forgets: !m.disk}
		default:
			known[m.name] = nil
		}
	}
	return known
}

func (w *world) do(next published.Policy, r Rotation, by []crypto.Signer, dry bool) (*chain.Chain, error) {
	q := *w.Publisher
	q.Signers, q.Dry = by, dry
	c, _, err := Keys(w.T.Context(), &q, w.Policy, r)
	return c, err
}

// take has the publisher go on with what a rotation made.
func (w *world) take(next published.Policy, c *chain.Chain, by []crypto.Signer) {
	next.Chain = c
	w.Policy, w.Signers = next, nil
	for _, s := range by {
		if _, counts := sign.Find(next.Operator, s.Public()); counts {
			w.Signers = append(w.Signers, s)
		}
	}
}

// refuses returns why a reader that knows some keys takes nothing new of a node: its overlay or
// fleet:current; nil where it takes both.
func (w *world) refuses(m machine, k spec.Keys, floor spec.Floor) error {
	ctx, src := w.T.Context(), w.Registry.Source()
	b := chain.With(spec.Bootstrap{Fleet: w.Policy.Fleet}, k)
	clock := trust.Clock{RTC: w.Now}
	overlay, err := trust.Overlay(ctx, src, []string{m.name}, "")
	must(w.T, err)
	a, err := trust.All().Accept(overlay, b, trust.Identity{Node: m.name, MACs: []string{"52:54:00:00:00:0" + m.name[1:]}}, clock, trust.Known{Floor: floor})
	if err != nil {
		return err
	}
	current, err := trust.Current(ctx, src, "")
	must(w.T, err)
	_, err = trust.AcceptFleet(current, b, floor, a.Floor.Epoch, clock)
	return err
}

// states returns why each of the ways in which a machine may be takes nothing new, by a name:
// its agent as it runs, and its loader as it boots, from each version that either may know.
func (w *world) states(m machine, versions []chain.Link) map[string]error {
	out := map[string]error{}
	current := spec.Floor{Epoch: w.epoch()}
	walked := map[uint64]spec.Keys{}
	for _, l := range versions {
		c, err := chain.Begin(l.Candidate.Document)
		must(w.T, err)
		must(w.T, c.Walk(w.T.Context(), w.Registry.Source(), func(chain.Link) error { return nil }))
		walked[l.Keys.Version] = c.Newest().Keys
	}
	for _, l := range versions {
		v := l.Keys.Version
		fixed := l.Keys // of boot files without a chain, or that a loader handed to an older agent
		loader, floor := walked[v], spec.Floor{}
		if m.disk {
			floor = current
		}
		if !m.follows || !m.chained && m.told { // an older agent does not tell what its boot files begin, nor one without a chain of its disk
			loader, floor = fixed, spec.Floor{}
		}
		out[fmt.Sprintf("%s boots, version %d", m.name, v)] = w.refuses(m, loader, floor)
		agent := walked[v]
		if !m.follows || !m.chained && m.told {
			agent = fixed
		}
		out[fmt.Sprintf("%s runs, version %d", m.name, v)] = w.refuses(m, agent, current)
	}
	return out
}

func (w *world) epoch() uint64 {
	x, err := w.Index()
	must(w.T, err)
	return x.Epoch
}

// lose returns the machines that are lost in a way in which they were not before.
func (w *world) lose(before map[string]error, versions []chain.Link) (lost []string) {
	for _, m := range w.machines {
		for state, err := range w.states(m, versions) {
			if err != nil && before[state] == nil && !slices.Contains(lost, m.name) {
				lost = append(lost, m.name)
			}
		}
	}
	return lost
}

// TestRehearseTellsTheTruth: over rotations of all kinds, of fleets of all kinds of machines at
// some version of the keys, a rehearsal says yes exactly when the rotation comes through and
// no machine is lost by it, the next publish and the first one after its hold. Where it names machines that would be lost,
// nothing is written; done all the same, they are those that are.
func TestRehearseTellsTheTruth(t *testing.T) { truth(t, 60) }

// The same, over more of them.
func TestLongRehearseTellsTheTruth(t *testing.T) {
	require.Long(t)
	truth(t, 600)
}

func truth(t *testing.T, seeds uint64) {
	require.Slow(t)
	counts := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { counts[tellsTheTruth(t, seed)]++ })
	}
	for _, what := range []string{"nobody is lost", "some are lost", "refused"} {
		if counts[what] < int(seeds)/10 {
			t.Errorf("%v: this shows little", counts)
			break
		}
	}
	t.Logf("%v", counts)
}

func tellsTheTruth(t *testing.T, seed uint64) string {
	w := newWorld(t, seed)
	all := []string{"n0", "n1", "n2"}
	for range w.rng.IntN(3) { // to a middle version: what is lost on the way is
		next, r, by := w.draw()
		r.Lose = all
		if c, err := w.do(next, r, by, false); err == nil && c.Version() > w.Policy.Chain.Version() {
			w.take(next, c, by)
			w.goesOn()
			w.hold()
		}
	}
	versions := w.Policy.Chain.Links()
	before := map[string]error{}
	for _, m := range w.machines {
		for state, err := range w.states(m, versions) {
			before[state] = err
		}
	}
	next, r, by := w.draw()
	_, rehearsed := w.do(next, r, by, true)
	was := w.tags()
	c, done := w.do(next, r, by, false)
	if (rehearsed == nil) != (done == nil) || rehearsed != nil && rehearsed.Error() != done.Error() {
		t.Errorf("rehearsed: %v; done: %v", rehearsed, done)
	}
	var named []string
	if done != nil {
		if now := w.tags(); now != was {
			t.Errorf("it is refused with %v, and has written:\n%s\n%s", done, was, now)
		}
		if !strings.Contains(done.Error(), "nodes would be lost") {
			return "refused"
		}
		for _, name := range all {
			if strings.Contains(strings.ReplaceAll(done.Error(), ":", " "), name+" ") {
				named = append(named, name)
			}
		}
		r.Lose = named
		if c, done = w.do(next, r, by, false); done != nil {
			if strings.Contains(done.Error(), "would be lost") {
				t.Errorf("what is lost was named: %v", done)
			}
			return "refused"
		}
	}
	if c.Version() == versions[len(versions)-1].Keys.Version {
		return "nothing changes"
	}
	// A node that knows the version before, and does not see the next yet, boots.
	for _, m := range w.machines {
		if err := w.refusesOverlay(m, versions[len(versions)-1].Keys); err != nil {
			t.Errorf("%s, which knows version %d alone: %v", m.name, len(versions), err)
		}
	}
	w.take(next, c, by)
	lost := w.lose(before, versions)
	must(t, w.publishAll(publish.Options{}))
	lost = append(lost, w.lose(before, versions)...)
	w.goesOn() // what is held gets nothing new before the hold ends
	lost = append(lost, w.lose(before, versions)...)
	slices.Sort(lost)
	lost = slices.Compact(lost)
	if !slices.Equal(lost, named) {
		t.Errorf("named: %q; lost: %q; of %+v, before: %v, signed by %d of %+v", named, lost, w.machines, before, len(by), w.Policy)
	}
	if named != nil {
		return "some are lost"
	}
	return "nobody is lost"
}

// refusesOverlay returns why a node that knows some keys does not take its overlay.
func (w *world) refusesOverlay(m machine, k spec.Keys) error {
	c, err := trust.Overlay(w.T.Context(), w.Registry.Source(), []string{m.name}, "")
	must(w.T, err)
	_, err = trust.All().Accept(c, chain.With(spec.Bootstrap{Fleet: w.Policy.Fleet}, k), trust.Identity{Node: m.name, MACs: []string{"52:54:00:00:00:0" + m.name[1:]}},
		trust.Clock{RTC: w.Now}, trust.Known{Floor: spec.Floor{Epoch: w.epoch()}})
	return err
}

// tags returns what each tag leads to.
func (w *world) tags() string {
	var b strings.Builder
	for _, repo := range []string{"fleet", "node", "layer"} {
		tags, err := w.Registry.Tags(w.T.Context(), repo)
		must(w.T, err)
		slices.Sort(tags)
		for _, tag := range tags {
			resp, err := w.Registry.Source().Manifest(w.T.Context(), repo, tag, "")
			must(w.T, err)
			fmt.Fprintln(&b, repo, tag, resp.Digest)
		}
	}
	return b.String()
}
