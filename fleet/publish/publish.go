// SPDX-License-Identifier: Apache-2.0

// Package publish signs what nodes run and puts it where they look.
//
// One [Publisher] is one fleet in one registry. Publish gives nodes new overlays,
// Pin, Freeze, Rollback and Pause hold them and Forward and Resume end that, Advance moves
// a rollout, Rotate has other keys count, Retire ends nodes, Refresh renews expiring
// signatures, Verify checks all of it as a node would. Every change takes the next generation
// of the whole fleet; nodes whose overlay does not change keep theirs, so that a publish costs
// what it changes.
//
// All that write are one pipeline:
//
//  1. look (view.go) reads fleet:index and fleet:current, and checks both;
//  2. runAlone (alone.go) keeps other publishers out, looks again after every wait, and takes over
//     what a rollout that was cut has moved (heal.go);
//  3. the verb fills in a plan: rows that change, and a piece of work for each node that gets
//     a signature, with what it had;
//  4. repairTags adds what puts right a publish that was cut;
//  5. write (write.go) signs, asks the nodes' own decision about each, and pushes. A dry run ends
//     before the first write, with a key that is made for it (rehearse.go).
//
// A publisher is a verifier first: what a registry serves is compared with the
// site's keys and threshold, with itself and with what the publisher remembers
// ([Memory]) before any word of it is used. The lists in checks.go, shards.go,
// generation.go and layers.go are the whole rule. Before anything is pushed it goes through
// trust.Accept, the node's own decision: what nodes would refuse is never
// published.
//
// One publisher works at a time (package reserve). The order of writes is: the
// generation is remembered and reserved in fleet:index, overlays and their tags,
// shards, fleet:gen-EPOCH-GENERATION and fleet:index, fleet:current, and tags of
// nodes that are retired go last. Cut anywhere, a repeated publish heals it, and so does a hold or a retirement;
// what a rollout moved before it was cut stays where it is, see adoptMoves. No generation ever
// names two contents. What plans a
// fleet, moves it or shows what it was given imports it.
package publish

import (
	"crypto"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

// Publisher is a fleet in a registry, and who signs for it.
type Publisher struct {
	Registry *registry.Registry
	Signers  []crypto.Signer  // operators
	Now      time.Time        // that is signed
	Clock    func() time.Time // takes Now again behind each wait for others; nil leaves it as it is
	Say      func(format string, args ...any)

	Trust         *Policy       // for all but Publish; nil trusts the signers alone, all of which must have signed
	Memory        *Memory       // nil remembers nothing
	NewFleet      bool          // a registry without a fleet is expected
	Images        bool          // Verify reads the images of layers, too
	AcceptExpired bool          // what is published may have expired
	IgnoreIntent  string        // tag of a publisher that died
	Author        string        // who is at work, for those who wait for it
	Wait          time.Duration // for other publishers, before one that is at work is an error
	Dry           bool          // results say what would be done: no key of the fleet signs, and nothing is written
	Kept          *Shards       // of the fleet's index as it was read last; nil reads all of it again

	current *trust.FleetState // fleet:current as it is published; nil before the first time
	rules   *rules            // nil is whole
	agent   *trust.Rules      // by which nodes decide; nil is all that this release's agent has
	pace    *reserve.Pace     // nil is reserve.Usual
	lease   *reserve.Lease    // of a run on a registry server
}

// Policy holds the trust section of a site. Without a site the verified fleet:index
// completes it.
type Policy struct {
	Site      bool // it is a site's, all roles are known
	Fleet     string
	Operator  []sign.Verifier
	Release   []sign.Verifier
	Threshold int
	Lifetime  time.Duration
	Epoch     []sign.Verifier // who may raise the epoch; not in the index

	Root          []sign.Verifier // who says which keys count; not in the index
	RootThreshold int
	Attestation   []sign.Verifier
	Rescue        []sign.Verifier // who may let somebody into a node; not in the index
	Chain         *chain.Chain    // versions of the keys as the site has them; nil: the keys above count
	Beside        bool            // no site document names keys, so none can differ from those of the newest version

	former []Policy // whose fleet:current is taken, too, while a rotation that was cut is taken up, the newest first
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

// keep notes that a node does not go back, and why.
func (r *Result) keep(node string, why error) {
	if r.Stay == nil {
		r.Stay = map[string]string{}
	}
	r.Stay[node] = why.Error()
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

func (r *Result) add(w *work, generation uint64) {
	line := NodeLine{w.name, w.overlay, w.layer, generation, w.runsOn}
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

// trusted returns the policy for what is published, where no site is at hand.
func (p *Publisher) trusted() Policy {
	if p.Trust != nil {
		return *p.Trust
	}
	var policy Policy
	seen := map[string]bool{}
	for _, s := range p.Signers {
		if pub, err := sign.NewVerifier(s.Public()); err == nil && !seen[pub.ID()] {
			seen[pub.ID()] = true
			policy.Operator = append(policy.Operator, pub)
		}
	}
	policy.Threshold = len(policy.Operator)
	p.Say("no site: what is published must be signed by %s", allOf(policy.Threshold))
	return policy
}

func allOf(n int) string {
	if n == 1 {
		return "the key that signs now"
	}
	return fmt.Sprintf("all %d keys that sign now", n)
}

// MayPublish refuses what of a site and its signers is wrong whatever the registry holds: for
// verbs that do work before they publish.
func (p *Publisher) MayPublish(policy Policy) error {
	if err := policy.SameFleet(); err != nil || policy.Beside { // then the versions say whose keys count
		return err
	}
	return p.checkSigners(policy)
}

// checkSigners refuses signers that nodes do not trust, and too few of them.
func (p *Publisher) checkSigners(policy Policy) error {
	if p.Dry && len(p.Signers) == 0 {
		return nil // nobody is asked for a key to look at what it would do
	}
	seen := map[string]bool{}
	for _, s := range p.Signers {
		pub, ok := sign.Find(policy.Operator, s.Public())
		if !ok {
			if policy.Beside && policy.Chain != nil {
				return hint("sign with a key of that version", "the signing key is not an operator key of version %d of the keys",
					policy.Chain.Version())
			}
			return hint("trust.keys.operator of the site names who may", "the signing key is not one of the site's operator keys")
		}
		seen[pub.ID()] = true
	}
	if len(seen) < policy.Threshold {
		sign := "one key signs"
		if len(seen) != 1 {
			sign = fmt.Sprintf("%d keys sign", len(seen))
		}
		return hint("give --key once for each", "%s, the site demands %d", sign, policy.Threshold)
	}
	return nil
}

func hint(hint, format string, args ...any) error {
	return cli.WithHint(fmt.Errorf(format, args...), hint)
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
		alike.Add(n.Node, "held\t"+HoldText(n.Holds), "held\t"+HoldText(n.Holds))
	}
	for _, n := range r.Ended {
		alike.Add(n.Node, "not held any more\t"+HoldText(n.Holds), "not held any more\t"+HoldText(n.Holds))
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
