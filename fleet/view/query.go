// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Query chooses nodes. A node has to meet all that is given.
type Query struct {
	Text      string    // in its name, or why it is as it is
	Condition Condition // or "trouble": any that somebody should look at
	Layer     string    // digest of the layer that it runs, or the beginning of it
	Version   string    // of that layer
	Sync      string    // or what it is before the colon, as in refused
	Health    string
	Service   string // that it reports
	Commit    string // of that service; "" is any
	Differs   bool   // it runs something else than is published
	Sort      Order

	Among map[string]bool // one of these names; nil is any
}

// Named restricts a query to nodes of these names. Without any no node meets it.
func (q *Query) Named(names []string) {
	q.Among = plain.Map(names, func(name string) (string, bool) { return name, true })
}

// Line is one node of a list.
type Line struct {
	Name       string          `json:"name"`
	Condition  Condition       `json:"condition"`
	Why        string          `json:"why,omitempty"`
	Received   time.Time       `json:"received,omitzero"` // its last report
	Generation uint64          `json:"generation,omitempty"`
	Published  uint64          `json:"published,omitempty"` // generation
	Layer      string          `json:"layer,omitempty"`
	Version    string          `json:"version,omitempty"`
	Agent      string          `json:"agent,omitempty"`
	Health     string          `json:"health,omitempty"`
	Sync       string          `json:"sync,omitempty"`
	Tracking   string          `json:"tracking,omitempty"`
	Activity   string          `json:"activity,omitempty"`
	Drift      int             `json:"drift,omitempty"`
	Ended      time.Time       `json:"ended,omitzero"`   // when an operation of it ended last, by its clock
	Holds      []string        `json:"holds,omitempty"`  // kinds
	Labels     []string        `json:"labels,omitempty"` // of the site, each as KEY=VALUE
	Hint       *Hint           `json:"hint,omitempty"`   // unproven
	Keys       *spec.KeysKnown `json:"keys,omitempty"`   // as it reported
	TPM        Attestation     `json:"tpm,omitempty"`    // what its TPM shows
	TPMWhy     string          `json:"tpmWhy,omitempty"` // why it is not attested
	Axes       *spec.Axes      `json:"-"`
	Kind       Kind            `json:"-"`
}

// Line returns a node as a list has it.
func (n *Node) Line(now time.Time) Line {
	l := Line{Name: n.Name, Received: n.Received, Hint: n.Hinted(now)}
	l.Condition, l.Why = n.Condition(now)
	l.Kind = KindOf(l.Condition)
	l.TPM, l.TPMWhy = n.Attestation(now)
	if b := n.Report; b != nil {
		l.Generation, l.Layer, l.Version, l.Agent, l.Drift, l.Axes = b.Generation, b.Layer, b.Version, b.Agent, b.Drift, &b.Axes
		l.Keys, l.Ended = b.Keys, b.Ended
		l.Health, l.Sync, l.Tracking, l.Activity = b.Axes.Health.State, b.Axes.Sync.State, b.Axes.Tracking.State, b.Axes.Activity.State
	}
	if p := n.Published; p != nil {
		l.Published = p.Generation
	}
	l.Holds = plain.Each(n.holds(now), func(h spec.Hold) string { return h.Kind })
	return l
}

// TroubleWord is the condition of a query for all that somebody should look at.
const TroubleWord Condition = "trouble"

// Matches reports whether a node meets a query.
func (q Query) Matches(n Judged) bool {
	if q.Among != nil && !q.Among[n.Name] {
		return false
	}
	if q.Service != "" {
		if commit := n.Commit(q.Service); commit == "" || q.Commit != "" && commit != q.Commit {
			return false
		}
	}
	s := n.said.Value()
	if q.Differs && !s.differs || q.Layer != "" && !strings.HasPrefix(s.layer, q.Layer) && !strings.HasPrefix(digest.Hex(s.layer), q.Layer) ||
		q.Version != "" && s.version != q.Version || q.Sync != "" && s.sync != q.Sync && !strings.HasPrefix(s.sync, q.Sync+":") ||
		q.Health != "" && s.health != q.Health {
		return false
	}
	switch {
	case q.Condition == TroubleWord && !KindOf(s.condition).Trouble,
		q.Condition != "" && q.Condition != TroubleWord && s.condition != q.Condition:
		return false
	case q.Text == "":
		return true
	}
	text := strings.ToLower(q.Text)
	return strings.Contains(n.Name, text) || strings.Contains(strings.ToLower(s.why), text)
}

// Select returns the nodes that meet a query: so many from one place on in its order, and
// how many there are in all. The nodes are by name.
func Select(nodes []Judged, q Query, from, most int, now time.Time) (lines []Line, all int) {
	var met []place
	first, by, compare := from+most, q.Sort.By(), q.Sort.comparing()
	cut := func() {
		slices.SortFunc(met, compare)
		met = met[:min(len(met), first)]
	}
	for i := range nodes {
		if !q.Matches(nodes[i]) {
			continue
		}
		all++
		if p := nodes[i].place(i, by); len(met) < first || first > 0 && compare(p, met[first-1]) < 0 {
			if met = append(met, p); len(met) == first || len(met) > 2*first { // the others are not listed
				cut()
			}
		}
	}
	cut()
	return plain.Each(met[min(from, len(met)):], func(p place) Line { return nodes[p.at].Line(now) }), all
}

// Count says how many nodes have something in common.
type Count struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
}

// Reason is why nodes are not fine.
type Reason struct {
	Condition Condition `json:"condition"`
	Why       string    `json:"why"`
	Nodes     int       `json:"nodes"`
	Example   string    `json:"example"` // the first such node
}

// LayerUse says how many nodes run a layer, and for how many it is published.
type LayerUse struct {
	Layer     string `json:"layer"`
	Version   string `json:"version,omitempty"`
	Running   int    `json:"running"`
	Published int    `json:"published"`
}

// Summary is a fleet at a glance.
type Summary struct {
	Nodes      int                 `json:"nodes"`
	Trouble    int                 `json:"trouble"` // nodes that somebody should look at
	Conditions map[Condition]int   `json:"conditions"`
	Reasons    []Reason            `json:"reasons"`        // of trouble, the worst first, then the most frequent
	Others     []Reason            `json:"others"`         // why others are not fine: behind, held, never reported
	More       int                 `json:"more,omitempty"` // reasons that neither list has room for
	Layers     []LayerUse          `json:"layers"`
	Differ     int                 `json:"differ"`            // nodes that run something else than is published
	Releases   []Count             `json:"releases"`          // of agents
	Unheard    int                 `json:"unheard,omitempty"` // nodes that are as they said before the service could hear them
	TPM        map[Attestation]int `json:"tpm,omitempty"`     // nodes by what their TPM shows; those of which that is not known are left out
	Hinted     int                 `json:"hinted"`            // nodes with an unproven hint
	Hints      []Hint              `json:"hints"`             // of them, the newest first
}

// What a page lists of them at most.
const (
	maxReasons = 12
	maxHints   = 12
)

// Summarise counts.
func Summarise(nodes []Judged) Summary {
	s := Summary{Nodes: len(nodes), Conditions: map[Condition]int{}, Reasons: []Reason{}, Others: []Reason{},
		Layers: []LayerUse{}, Releases: []Count{}, Hints: []Hint{}}
	type cause struct {
		Condition
		why string
	}
	reasons, layers, agents := map[cause]*Reason{}, map[string]*LayerUse{}, map[string]int{}
	layer := func(digest string) *LayerUse {
		if layers[digest] == nil {
			layers[digest] = &LayerUse{Layer: digest}
		}
		return layers[digest]
	}
	for _, a := range alike(nodes) {
		of := a.said.Value()
		c, why := of.condition, of.why
		s.Conditions[c] += a.nodes
		if c != Fine {
			if c == Silent {
				why = "" // each has its own time
			}
			if reasons[cause{c, why}] == nil {
				reasons[cause{c, why}] = &Reason{c, why, 0, a.first}
			}
			reasons[cause{c, why}].Nodes += a.nodes
		}
		s.note(&of, a.nodes)
		if of.published != "" {
			layer(of.published).Published += a.nodes
		}
		if of.layer != "" {
			l := layer(of.layer)
			l.Running, l.Version = l.Running+a.nodes, cmp.Or(l.Version, of.version)
		}
		if of.reported {
			agents[of.agent] += a.nodes
		}
	}
	for i := range nodes {
		if n := &nodes[i]; n.said.Value().hinted {
			s.Hints = append(s.Hints, *n.Hint)
		}
	}
	for _, r := range reasons {
		list := &s.Others
		if KindOf(r.Condition).Trouble {
			list = &s.Reasons
		}
		*list = append(*list, *r)
	}
	for _, list := range []*[]Reason{&s.Reasons, &s.Others} {
		slices.SortFunc(*list, func(a, b Reason) int {
			return cmp.Or(cmp.Compare(a.Condition.rank(), b.Condition.rank()), cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Why, b.Why))
		})
		s.More += max(0, len(*list)-maxReasons)
		*list = (*list)[:min(len(*list), maxReasons)]
	}
	slices.SortFunc(s.Hints, func(a, b Hint) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Node, b.Node)) })
	s.Hinted, s.Hints = len(s.Hints), s.Hints[:min(len(s.Hints), maxHints)]
	for _, l := range layers {
		s.Layers = append(s.Layers, *l)
	}
	slices.SortFunc(s.Layers, func(a, b LayerUse) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Published, a.Published), cmp.Compare(a.Layer, b.Layer))
	})
	for name, n := range agents {
		s.Releases = append(s.Releases, Count{name, n})
	}
	slices.SortFunc(s.Releases, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Name, b.Name)) })
	return s
}

// note counts trouble, and what a node's condition does not say.
func (s *Summary) note(of *said, nodes int) {
	if KindOf(of.condition).Trouble {
		s.Trouble += nodes
	}
	if of.differs {
		s.Differ += nodes
	}
	if of.tpm != "" {
		if s.TPM == nil {
			s.TPM = map[Attestation]int{}
		}
		s.TPM[of.tpm] += nodes
	}
	if of.unheard {
		s.Unheard += nodes
	}
}

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
