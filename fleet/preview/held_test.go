// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/require"
)

// heldWorld is a fleet whose nodes are held at random, too.
type heldWorld struct {
	drawn
	swappiness map[string]int // by node
	common     int
	packages   []string

	held       map[string]heldAt // by node
	generation uint64
	epoch      uint64
}

// heldAt is what a node is held at, and by how many holds.
type heldAt struct {
	overlay string
	holds   int
}

func (w *heldWorld) site() *site.Site {
	w.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\nlayer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: linux-image-amd64}}\nnodes:\n")
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "  - {name: %s, match: {macs: [\"52:54:00:00:%02x:%02x\"]}}\n", n, w.mac, n[0])
	}
	fmt.Fprintf(&b, "conf:\n  sysctl: {vm.swappiness: %d}\n  apt: {packages: [{name: %s}]}\n  overrides:\n    divingbell_sysctl: {hosts: [", w.common, strings.Join(w.packages, "}, {name: "))
	for _, n := range w.nodes {
		if v, ok := w.swappiness[n]; ok {
			fmt.Fprintf(&b, "{name: %s, conf: {sysctl: {vm.swappiness: %d}}}, ", n, v)
		}
	}
	b.WriteString("]}\n")
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(b.String())}}, "site.yaml")
	if err := found.Err(); err != nil {
		w.t.Fatalf("%v\n%s", err, b.String())
	}
	return s
}

// edit changes the site, or nothing, in a way that a person might.
func (w *heldWorld) edit() {
	switch w.rand.IntN(8) {
	case 0:
		w.common = w.rand.IntN(3)
	case 1:
		w.swappiness[w.nodes[w.rand.IntN(len(w.nodes))]] = w.rand.IntN(3)
	case 2:
		delete(w.swappiness, w.nodes[w.rand.IntN(len(w.nodes))])
	case 3:
		w.packages = [][]string{{"jq"}, {"jq", "tree"}, {"tree"}}[w.rand.IntN(3)]
	case 4:
		w.join()
	case 5:
		w.leave()
	case 6:
		w.mac = w.rand.IntN(2)
	}
}

// hold does what an operator might between two publishes.
func (w *heldWorld) hold() (what string) {
	p, policy := w.publisher()
	p.Trust = &policy
	h := hold.Order{Nodes: []string{w.nodes[w.rand.IntN(len(w.nodes))]}, By: publish.By{Reason: "at random"}}
	if w.rand.IntN(4) == 0 {
		h.Nodes, h.All = nil, true
	}
	if w.rand.IntN(3) == 0 {
		h.Until = w.now.Add(time.Duration(1+w.rand.IntN(5)) * time.Second)
	}
	verbs := map[string]func() (*publish.Result, error){
		"freeze": func() (*publish.Result, error) { return hold.Freeze(w.t.Context(), p, h) },
		"pin":    func() (*publish.Result, error) { return hold.Pin(w.t.Context(), p, h, "v0") },
		"rollback": func() (*publish.Result, error) {
			return hold.Rollback(w.t.Context(), p, h, []string{"", "1"}[w.rand.IntN(2)])
		},
		"pause":   func() (*publish.Result, error) { return hold.Pause(w.t.Context(), p, h) },
		"resume":  func() (*publish.Result, error) { return hold.Resume(w.t.Context(), p, h) },
		"forward": func() (*publish.Result, error) { return hold.Forward(w.t.Context(), p, h) },
		"refresh": func() (*publish.Result, error) { return p.Refresh(w.t.Context(), publish.Lists{}) },
	}
	names := slices.Sorted(maps.Keys(verbs))
	what = names[w.rand.IntN(len(names))]
	w.now = w.now.Add(time.Second)
	p.Now = w.now
	if _, err := verbs[what](); err != nil {
		return what + " refused" // the node is new, had nothing before, or its variant has no such layer
	}
	w.held = map[string]heldAt{}
	for name, row := range w.rows() {
		if len(row.Holds) > 0 {
			w.held[name] = heldAt{row.Overlay, len(row.Holds)}
		}
	}
	return what
}

func (w *heldWorld) rows() map[string]spec.Published {
	w.t.Helper()
	p, policy := w.publisher()
	fleet, err := p.Read(w.t.Context(), policy)
	if err != nil {
		w.t.Fatal(err)
	}
	rows, err := fleet.Nodes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// check holds what every publish promises: held nodes have what they had, generations
// rise, nodes accept all of it, and each generation is found again.
func (w *heldWorld) check(seen map[string]int) {
	w.t.Helper()
	for name, row := range w.rows() {
		was, held := w.held[name]
		if !held || len(row.Holds) == 0 {
			continue
		}
		if seen["held"]++; was.overlay != row.Overlay && was.holds == len(row.Holds) { // a pause that ended takes its mark along
			w.t.Fatalf("node %s is held by %+v, and its content changed", name, row.Holds)
		}
	}
	p, policy := w.publisher()
	report, err := verify.Fleet(w.t.Context(), &p.Reader, policy, nil, false)
	if err != nil || !report.OK() {
		w.t.Fatalf("verify: %+v, %v", report, err)
	}
	if report.Epoch < w.epoch || report.Epoch == w.epoch && report.Generation < w.generation {
		w.t.Fatalf("generation %d of epoch %d follows %d of %d", report.Generation, report.Epoch, w.generation, w.epoch)
	}
	w.epoch, w.generation = report.Epoch, report.Generation
	fleet, err := p.Read(w.t.Context(), policy)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := fleet.Generations(w.t.Context())
	if err != nil || list[0] != (published.Generation{Epoch: w.epoch, Number: w.generation}) {
		w.t.Fatalf("the newest generation that is kept is %v, %v", list, err)
	}
	if _, err := fleet.Past(w.t.Context(), list[w.rand.IntN(len(list))]); err != nil {
		w.t.Fatal(err)
	}
}

// TestHeldNodesKeepWhatTheyHave edits, builds, holds and publishes at random. Held nodes
// keep what they have, a plan says which nodes a publish changes, and one without
// changes is followed by a publish without any.
func TestHeldNodesKeepWhatTheyHave(t *testing.T) {
	require.Slow(t)
	seen := map[string]int{}
	for seed := range uint64(4) {
		w := &heldWorld{drawn: draw(t, seed), swappiness: map[string]int{}, held: map[string]heldAt{}, packages: []string{"jq"}}
		for range 20 {
			w.edit()
			s := w.site()
			if w.rand.IntN(2) == 0 {
				w.build(s)
			}
			if w.epoch+w.generation > 0 && w.rand.IntN(2) == 0 {
				seen[w.hold()]++
				w.check(seen)
			}
			_, _, ok := w.round(s, seen)
			if ok && w.rand.IntN(6) == 0 { // every node is signed again, the held ones over what they have
				w.now = w.now.Add(time.Second)
				w.publish(s, publish.Options{Epoch: w.epoch + 1, EpochKey: w.top})
				seen["epoch"]++
			}
			if ok {
				w.check(seen)
				w.settled(s)
			}
		}
	}
	for what, least := range map[string]int{"to be built": 3, "nothing": 3, "changes": 3, "held": 3, "epoch": 3,
		"freeze": 1, "pin": 1, "rollback": 1, "pause": 1, "resume": 1, "forward": 1, "refresh": 1} {
		if seen[what] < least {
			t.Errorf("%d rounds ended in %q: it tests nothing", seen[what], what)
		}
	}
}
