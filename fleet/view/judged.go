// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"
	"unique"

	"github.com/caisson-os/caisson/internal/plain"
)

// Judged is a node beside what is said of it. That is the same for most nodes, and they share it.
type Judged struct {
	*Node
	said  unique.Handle[said]
	until time.Time // time alone changes it then; zero is never
}

// said holds what lists choose by and what is counted.
type said struct {
	condition      Condition
	why            string
	tpm            Attestation
	layer, version string // that it runs
	agent          string
	health, sync   string
	published      string // layer
	reported       bool
	differs        bool
	unheard        bool
	hinted         bool
}

// Judge judges a node. It is as time has it until the time that it holds.
func Judge(n *Node, now time.Time) Judged {
	s := said{differs: n.Differs(), unheard: n.overdue(now) && !n.Silent(now), hinted: n.Hinted(now) != nil}
	s.condition, s.why = n.Condition(now)
	s.tpm, _ = n.Attestation(now)
	if b := n.Report; b != nil {
		s.reported, s.layer, s.version, s.agent, s.health, s.sync = true, b.Layer, b.Version, b.Agent, b.Axes.Health.State, b.Axes.Sync.State
	}
	if n.Published != nil {
		s.published = n.Published.Layer
	}
	return Judged{n, unique.Make(s), n.until(now)}
}

// Is returns a node's condition, and why it is so.
func (j Judged) Is() (Condition, string) {
	s := j.said.Value()
	return s.condition, s.why
}

// group holds nodes of which the same is said.
type group struct {
	said  unique.Handle[said]
	first string
	nodes int
}

// alike returns nodes in groups, by the first of each.
func alike(nodes []Judged) (list []group) {
	at := map[unique.Handle[said]]int{}
	for i := range nodes {
		n := &nodes[i]
		g, known := at[n.said]
		if !known {
			g, list = len(list), append(list, group{n.said, n.Name, 0})
			at[n.said] = g
		}
		list[g].nodes++
	}
	return list
}

// until returns when time alone may next change what is said of a node.
func (n *Node) until(now time.Time) (next time.Time) {
	at := func(t time.Time) {
		for _, t := range []time.Time{t, t.Add(1)} { // what lasts so long has ended behind that
			if t.After(now) {
				next = sooner(next, t)
			}
		}
	}
	around := func(t time.Time, d time.Duration) { at(t.Add(-d)); at(t.Add(d)) }
	if n.Report != nil {
		around(n.Received, Patience(n.Report.Interval))
		at(n.Listens.Add(Patience(n.Report.Interval)))
	}
	if o := n.Offered; o != nil {
		at(o.At.Add(Patience(min(o.Interval, longestOffer))))
	}
	if n.Hint != nil {
		at(n.Hint.At.Add(HintKept))
	}
	if n.Quote != nil {
		around(n.Quote.At, QuoteLasts)
	}
	for _, h := range n.holds(now) {
		if h.Until != 0 {
			at(time.Unix(h.Until, 0))
		}
	}
	return next
}

// sooner returns the earlier of two times of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Kept holds nodes by name and what is said of each, which it finds out again where the node is replaced and
// where time alone may have changed it. It is not safe for use by several goroutines; the lists that it gives are.
type Kept struct {
	nodes []Judged
	given bool      // somebody has the list, and it changes no more
	last  time.Time // when it was last asked
	next  time.Time // time alone changes nothing before; zero is never
}

// NewKept keeps nodes.
func NewKept(nodes []*Node, now time.Time) *Kept {
	k := &Kept{nodes: make([]Judged, 0, len(nodes)), last: now.Round(0)}
	for _, n := range nodes {
		k.nodes = append(k.nodes, Judge(n, k.last))
		k.next = sooner(k.next, k.nodes[len(k.nodes)-1].until)
	}
	slices.SortFunc(k.nodes, func(a, b Judged) int { return plain.Natural(a.Name, b.Name) })
	return k
}

// Put puts a node in the place of the one of its name, and reports whether there is one.
func (k *Kept) Put(n *Node) bool {
	i, found := slices.BinarySearchFunc(k.nodes, n.Name, func(j Judged, name string) int { return plain.Natural(j.Name, name) })
	if found {
		k.own()
		k.nodes[i] = Judge(n, k.last)
		k.next = sooner(k.next, k.nodes[i].until)
	}
	return found
}

// own has the list to itself.
func (k *Kept) own() {
	if k.given {
		k.nodes, k.given = slices.Clone(k.nodes), false
	}
}

// All returns all nodes by name, as they are now. The list is only read.
func (k *Kept) All(now time.Time) []Judged {
	now = now.Round(0) // a clock that is set counts as set
	back := now.Before(k.last)
	if k.last = now; back || !k.next.IsZero() && !now.Before(k.next) {
		k.own()
		k.next = time.Time{}
		for i, j := range k.nodes {
			if back || !j.until.IsZero() && !now.Before(j.until) {
				k.nodes[i] = Judge(j.Node, now)
			}
			k.next = sooner(k.next, k.nodes[i].until)
		}
	}
	k.given = true
	return k.nodes
}
