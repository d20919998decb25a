// SPDX-License-Identifier: Apache-2.0

// Package publish signs what nodes run and puts it where they look.
//
// One [Publisher] is one fleet in one registry. Publish gives nodes new overlays, Advance moves a
// rollout, Retire ends nodes, Refresh renews expiring signatures; package hold keeps what nodes have,
// package rotate has other keys count. Every change takes the next generation of the whole fleet;
// nodes whose overlay does not change keep theirs, so that a publish costs what it changes.
//
// All that write are one pipeline:
//
//  1. package published reads fleet:index and fleet:current, and checks both: a publisher is a
//     verifier first;
//  2. RunAlone (alone.go) keeps other publishers out, looks again after every wait, and takes over
//     what a rollout that was cut has moved (heal.go);
//  3. the verb fills in a plan: rows that change, and a piece of work for each node that gets
//     a signature, with what it had;
//  4. repairTags adds what puts right a publish that was cut;
//  5. Write (write.go) signs, asks the nodes' own decision about each, and pushes. A dry run ends
//     before the first write, with a key that is made for it (rehearse.go).
//
// Before anything is pushed it goes through trust.Accept, the node's own decision: what nodes would
// refuse is never published.
//
// One publisher works at a time (package reserve). The order of writes is: the
// generation is remembered and reserved in fleet:index, overlays and their tags,
// shards, fleet:gen-EPOCH-GENERATION and fleet:index, fleet:current, and tags of
// nodes that are retired go last. Cut anywhere, a repeated publish heals it, and so does a hold or a retirement;
// what a rollout moved before it was cut stays where it is, see adoptMoves. No generation ever
// names two contents. What plans a fleet or changes it imports it.
package publish

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Publisher is a fleet in a registry, and who signs for it.
type Publisher struct {
	published.Reader // Now is the time that is signed; its Trust is for all but Publish

	Clock        func() time.Time // takes Now again behind each wait for others; nil leaves it as it is
	IgnoreIntent string           // tag of a publisher that died
	Author       string           // who is at work, for those who wait for it
	Wait         time.Duration    // for other publishers, before one that is at work is an error

	current *trust.FleetState // fleet:current as it is published; nil before the first time
	pace    *reserve.Pace     // nil is reserve.Usual
	lease   *reserve.Lease    // of a run on a registry server
}

// freshFor is how long fleet:current is fresh: `caisson refresh` runs daily, and
// two of its runs may fail.
const freshFor = 3 * 24 * time.Hour

// Result is the result of publish, refresh, retire and the verbs of holds, as -o json prints it.
type Result struct {
	Fleet      string     `json:"fleet"`
	Epoch      uint64     `json:"epoch"`
	Generation uint64     `json:"generation"`
	Published  []NodeLine `json:"published"` // new generation
	Resigned   []NodeLine `json:"resigned"`  // same content and generation, new signature
	Held       []HoldLine `json:"held"`      // nodes that keep their content, or were told to
	Ended      []HoldLine `json:"ended"`     // holds that ended, by an operator or because their time was over
	Left       []string   `json:"left"`      // nodes without a row from now on
	Kept       []string   `json:"kept"`      // nodes that keep their row, though the site has them not: who they are is in doubt
	Unchanged  int        `json:"unchanged"`

	Rejected []string `json:"rejected"` // digests that come to the reject list
	Allowed  []string `json:"allowed"`  // digests that leave it

	DryRun bool `json:"dryRun,omitempty"` // all of it would be so: nothing was written

	Stay map[string]string `json:"stay,omitempty"` // node → why it did not go back with the others
}

// HoldLine is one node that is or was held, in a [Result].
type HoldLine struct {
	Node  string      `json:"node"`
	Holds []spec.Hold `json:"holds"`
}

func newResult(root spec.FleetIndex) *Result {
	return &Result{Fleet: root.Fleet, Epoch: root.Epoch, Generation: root.Generation, Published: []NodeLine{}, Resigned: []NodeLine{},
		Held: []HoldLine{}, Ended: []HoldLine{}, Left: []string{}, Kept: []string{}, Rejected: []string{}, Allowed: []string{}}
}

func (r *Result) add(w *Work, generation uint64) {
	line := NodeLine{w.Name, w.Overlay, w.Layer, generation, w.runsOn}
	if w.resigned {
		r.Resigned = append(r.Resigned, line)
	} else {
		r.Published = append(r.Published, line)
	}
}

func (r *Result) sort() {
	for _, lines := range [][]NodeLine{r.Published, r.Resigned} {
		slices.SortFunc(lines, func(a, b NodeLine) int { return plain.Natural(a.Node, b.Node) })
	}
	for _, lines := range [][]HoldLine{r.Held, r.Ended} {
		slices.SortFunc(lines, func(a, b HoldLine) int { return plain.Natural(a.Node, b.Node) })
	}
	slices.SortFunc(r.Left, plain.Natural)
	slices.SortFunc(r.Kept, plain.Natural)
}

// NodeLine is one node in a [Result].
type NodeLine struct {
	Node       string   `json:"node"`
	Overlay    string   `json:"overlay"`
	Layer      string   `json:"layer"`
	Generation uint64   `json:"generation"`
	RunsOn     []string `json:"runsOn,omitempty"` // other layers on which what is live of the overlay may be applied
}

// Node is a node with the overlay that it is to run.
type Node struct {
	Name  string
	Match spec.Match
	Layer string                 // digest of its manifest
	Knows []string               // features of the layer's agent, see spec.Features
	Doc   func() ([]byte, error) // its overlay's one encoding, made at each call: a fleet's are too many to hold
}

// MayPublish refuses what of a site and its signers is wrong whatever the registry holds: for
// verbs that do work before they publish.
func (p *Publisher) MayPublish(policy published.Policy) error {
	if err := policy.SameFleet(); err != nil || policy.Beside { // then the versions say whose keys count
		return err
	}
	return p.checkSigners(policy)
}

// checkSigners refuses signers that nodes do not trust, and too few of them.
func (p *Publisher) checkSigners(policy published.Policy) error {
	if p.Dry && len(p.Signers) == 0 {
		return nil // nobody is asked for a key to look at what it would do
	}
	seen := map[string]bool{}
	for _, s := range p.Signers {
		pub, ok := sign.Find(policy.Operator, s.Public())
		if !ok {
			if policy.Beside && policy.Chain != nil {
				return cli.Hint("sign with a key of that version", "the signing key is not an operator key of version %d of the keys",
					policy.Chain.Version())
			}
			return cli.Hint("trust.keys.operator of the site names who may", "the signing key is not one of the site's operator keys")
		}
		seen[pub.ID()] = true
	}
	if len(seen) < policy.Threshold {
		sign := "one key signs"
		if len(seen) != 1 {
			sign = fmt.Sprintf("%d keys sign", len(seen))
		}
		return cli.Hint("give --key once for each", "%s, the site demands %d", sign, policy.Threshold)
	}
	return nil
}

// Write prints for people what was done about each node, or would be.
func (r *Result) Write(w io.Writer) {
	var alike plain.Alike
	for _, n := range r.Published {
		what, too := fmt.Sprintf("generation %d", n.Generation), ""
		if len(n.RunsOn) > 0 {
			too = fmt.Sprintf("\tlive on %s, too", plain.Count(len(n.RunsOn), "earlier layer"))
		}
		alike.Add(n.Node, what+"\t"+n.Overlay+too, what+strings.TrimRight("\t"+n.Layer, "\t")+too)
	}
	for _, n := range r.Resigned {
		alike.Add(n.Node, "renewed\t"+n.Overlay, "renewed")
	}
	for _, n := range r.Held {
		alike.Add(n.Node, "held\t"+published.HoldText(n.Holds), "held\t"+published.HoldText(n.Holds))
	}
	for _, n := range r.Ended {
		alike.Add(n.Node, "not held any more\t"+published.HoldText(n.Holds), "not held any more\t"+published.HoldText(n.Holds))
	}
	for _, name := range r.Left {
		alike.Add(name, "left", "left")
	}
	for _, name := range r.Kept {
		alike.Add(name, "kept as it is", "kept as it is")
	}
	alike.Print(w, "")
}

// Tell says what came of it all where the fleet is published.
func (r *Result) Tell(to string, say func(format string, args ...any)) {
	also := ""
	if n := len(r.Held); n > 0 {
		also = fmt.Sprintf(", %d held", n)
	}
	if n := len(r.Ended); n > 0 {
		also += fmt.Sprintf(", %d not held any more", n)
	}
	is, added, removed := "is", "added to", "removed from"
	if r.DryRun {
		is, added, removed = "would be", "would be added to", "would be removed from"
	}
	rejected := r.Rejected
	if n := len(rejected); n > plain.Few {
		rejected = []string{plain.Count(n, "digest")}
	}
	for _, d := range rejected {
		say("%s the reject list: %s", added, d)
	}
	for _, d := range r.Allowed {
		say("%s the reject list: %s", removed, d)
	}
	say("%s: fleet %s %s at generation %d: %d published, %d renewed, %d unchanged%s",
		to, r.Fleet, is, r.Generation, len(r.Published), len(r.Resigned), r.Unchanged, also)
}
