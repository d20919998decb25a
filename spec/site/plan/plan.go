// SPDX-License-Identifier: Apache-2.0

// Package plan says what publishing a site would change, node by node: what is
// added, changed and removed, which layers have to be built, and how much each
// node is disturbed by it, from none to a cold reboot.
//
// A [Planner] compares a site with what is published, one node at a time and in
// any order, so that memory stays bounded for any fleet. It fetches nothing: the
// command line gives it overlays, or only their digests, which settle most of a
// fleet. What a change costs is the table in package spec.
package plan

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
	"github.com/caisson-os/caisson/spec/site/module"
)

// Plan holds the changes that publishing a site would make.
type Plan struct {
	Nodes  []NodePlan  `json:"nodes"`
	Layers []LayerPlan `json:"layers"`

	NotLooked []string `json:"notLookedAt"`     // secrets that were not opened and may have another value now
	Marks     []string `json:"marks,omitempty"` // why generations that are compared do not count

	Terms *Terms `json:"terms,omitempty"` // absent where nothing was ever published
}

// NodePlan holds the changes on one node, and how much they disturb it.
type NodePlan struct {
	Name    string   `json:"name"`
	Class   string   `json:"class"` // one of spec's classes, the worst of its changes
	Why     string   `json:"why,omitempty"`
	Held    string   `json:"held,omitempty"`    // why publishing leaves the node as it is
	Rollout string   `json:"rollout,omitempty"` // that is under way and alone changes the node: publish refuses until it ends
	Changes []Change `json:"changes"`
	NoKey   []string `json:"noKey,omitempty"` // items that the node does without: a secret of theirs is not sealed to it
	// Others of its changes than that of the layer are made at once on the layer that it has, and
	// the layer alone waits.
	AtOnce bool `json:"atOnce,omitempty"`

	Next *Turn `json:"nextDisruption,omitempty"` // by what the node would be sent
	// when the node starts over by itself into these changes; absent where they need no boot, or
	// somebody has to reboot it
	Swap *Turn `json:"swap,omitempty"`
}

// Change is a published value that differs from the site's.
type Change struct {
	spec.Change
	Class string `json:"class"`
	Fetch int64  `json:"fetch,omitempty"` // bytes that a node with the layer before fetches for the next one; absent where it is not known
	Waits *Turn  `json:"waits,omitempty"` // when a value that waits for a window is set; absent where nothing waits

	why string
}

// because returns a change of a class, and why it is of that.
func because(c spec.Change, class, why string) Change {
	return Change{Change: c, Class: class, why: why}
}

func changes(all []compare.Change) []Change {
	return plain.Each(all, func(c compare.Change) Change { return because(c.Change, c.Class, c.Why) })
}

// LayerPlan is a variant of the system layer that the site needs.
type LayerPlan struct {
	Variant string   `json:"variant"`
	Recipe  string   `json:"recipe"`           // sha256:… of it
	Digest  string   `json:"digest,omitempty"` // of the manifest that publish would name; absent when it is to be built
	Action  string   `json:"action"`           // none, change (publishing moves nodes to it) or build (publish refuses until it is built)
	From    []string `json:"from,omitempty"`   // layers that its nodes have now and would leave, sorted
	Nodes   int      `json:"nodes"`
	// it was built with --fast, and a layer that its nodes would leave was not: they fetch more than a
	// build without would cost
	Fast    bool   `json:"fast,omitempty"`
	Differs string `json:"differs,omitempty"` // parts in which it differs from the default variant

	Advisories []*advisory.Change `json:"advisories,omitempty"` // one of each layer in From; absent where no file of them was given
}

// Actions of a [LayerPlan] besides none and change.
const ActionBuild = "build"

// Layer is a layer in a registry.
type Layer struct {
	spec.Layer
	Digest string      // of its manifest
	Made   spec.Recipe // what it was made of
}

// Layers answers a planner's questions about layers. Next and Published return nil for a
// layer that is not there or cannot be read.
type Layers interface {
	Next(v site.Variant) *Layer     // the one that publish would name
	Published(digest string) *Layer // by its manifest's digest
	Fetch(from, to *Layer) int64    // bytes that a node with the one, or with none, fetches for the other; 0 where it is not known
}

// Changed reports whether there is anything to do: publishing would change a
// node, a layer has to be built first, or nobody can say of a secret.
func (p *Plan) Changed() bool {
	return len(p.NotLooked) > 0 || slices.ContainsFunc(p.Nodes, func(n NodePlan) bool { return len(n.Changes) > 0 }) ||
		slices.ContainsFunc(p.Layers, func(l LayerPlan) bool { return l.Action == ActionBuild })
}

// Planner compares what is published with a site, one node at a time, so that
// the published overlays need not be held all at once. It may be used by several
// goroutines.
type Planner struct {
	mu       sync.Mutex
	site     *site.Site
	layers   Layers
	variants []site.Variant
	next     []*Layer // by variant; nil when it is to be built
	variant  map[string]int
	froms    []map[string]bool // layers that are left, by variant
	read     map[string]*Layer // published, by digest
	plan     *Plan
	same     map[string][]Change // equal lists are kept once
	moves    map[move][]Change
	ended    map[string][]Change // holds, by node
	UnderWay map[string]string   // rollouts that have not ended, by node
	Advise   Advise              // nil: layers are not compared
}

// Advise compares a layer that nodes of a variant would leave with the next one, by security
// advisories. Each is nil where it cannot be read, or is to be built.
type Advise func(v site.Variant, from, next *Layer) *advisory.Change

// move identifies the move of one layer's nodes.
type move struct {
	from    string
	variant int
}

// New returns a planner of a site. A site without a layer needs no layers.
func New(s *site.Site, layers Layers) *Planner {
	p := &Planner{site: s, layers: layers, variant: map[string]int{}, read: map[string]*Layer{},
		moves: map[move][]Change{}, ended: map[string][]Change{},
		plan: &Plan{Nodes: []NodePlan{}, Layers: []LayerPlan{}, NotLooked: []string{}}, same: map[string][]Change{}}
	if s.HasLayer() {
		p.variants, _ = s.Variants() // fails only without a layer
	}
	for i, v := range p.variants {
		next := layers.Next(v)
		if next != nil && digest.Hex(next.Recipe) != site.RecipeID(v.Recipe) {
			next = nil
		}
		p.next = append(p.next, next)
		p.froms = append(p.froms, map[string]bool{})
		for _, n := range v.Nodes {
			p.variant[n] = i
		}
	}
	return p
}

// Add compares one node of the site with what is published for it, nil when
// nothing is.
func (p *Planner) Add(node string, published *spec.Overlay) {
	want, err := p.site.Overlay(node, "")
	if err != nil {
		return // it is not the site's
	}
	var all []Change
	if published == nil {
		all = []Change{because(spec.Change{Item: "node", Key: node, To: "published", Action: spec.ActionAdd},
			spec.ClassCold, "it boots with this site for the first time")}
		published = &spec.Overlay{}
	} else {
		all = changes(compare.Overlays(published, want))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	moves := p.layerChanges(node, published.Layer)
	live := len(all) > 0 && !slices.ContainsFunc(all, func(c Change) bool { return !spec.Live(c.Class) })
	atOnce := false
	if live && len(moves) > 0 && !spec.Live(moves[0].Class) { // the layer waits for a boot; else nothing waits
		old := p.publishedLocked(published.Layer)
		atOnce = old != nil && old.Suits(want) == nil
	}
	wanted, now := p.site.OperationsOf(node)
	if live && (atOnce || len(moves) == 0 || spec.Live(moves[0].Class)) { // a boot sets everything
		wait(all, want, now)
	}
	n := p.nodePlan(node, append(all, moves...))
	n.AtOnce = atOnce
	n.Next = disruption(published.Maintenance, wanted, now)
	n.Swap = swap(n.Class, want.Swap, wanted, now)
	p.plan.Nodes = append(p.plan.Nodes, n)
}

// AddRow compares a node by its row of fleet:index alone: the digests of its
// overlay and layer. It returns false when that does not settle what changes;
// then the overlay is to be read and added.
func (p *Planner) AddRow(node, overlay, layer string) bool {
	if !p.site.Fleet().Has(node) {
		return false
	}
	variant := ""
	if layer != "" {
		l := p.published(layer)
		if l == nil {
			return false
		}
		variant = l.Variant
	}
	if would, err := p.site.Digest(node, layer, variant); err != nil || would != overlay {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodePlan(node, p.layerChanges(node, layer))
	wanted, now := p.site.OperationsOf(node)
	n.Next = disruption(wanted, wanted, now)
	n.Swap = swap(n.Class, p.site.SwapOf(node), wanted, now)
	p.plan.Nodes = append(p.plan.Nodes, n)
	return true
}

// published reads a layer once.
func (p *Planner) published(digest string) *Layer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.publishedLocked(digest)
}

func (p *Planner) publishedLocked(digest string) *Layer {
	if digest == "" {
		return nil
	}
	l, known := p.read[digest]
	if !known {
		l = p.layers.Published(digest)
		p.read[digest] = l
	}
	return l
}

// Ended notes before a node is added that publishing ends a hold of it, as it is
// described.
func (p *Planner) Ended(node, kind, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[node] = append(p.ended[node], because(spec.Change{Item: "hold", Key: kind, From: text, Action: spec.ActionRemove},
		spec.ClassNone, "a hold ends: its time is over"))
}

// Held notes a node that keeps what it has, whatever the site says.
func (p *Planner) Held(node, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodePlan(node, nil)
	n.Held = why
	p.plan.Nodes = append(p.plan.Nodes, n)
}

// givesAnother reports whether changes give a node another overlay.
func givesAnother(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool {
		return c.Item != "hold" && (c.Item != "node" || c.Action != spec.ActionRemove)
	})
}

// Gone notes a node that is published but not in the site any more.
func (p *Planner) Gone(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan.Nodes = append(p.plan.Nodes, p.nodePlan(node, []Change{
		because(spec.Change{Item: "node", Key: node, From: "published", Action: spec.ActionRemove},
			spec.ClassNone, "it keeps what it has and is sent nothing more")}))
}

func (p *Planner) nodePlan(node string, changes []Change) NodePlan {
	n := NodePlan{Name: node, Class: spec.ClassNone, Changes: []Change{}}
	changes = slices.Concat(p.ended[node], changes)
	var key strings.Builder
	waits := false
	for _, c := range changes {
		fmt.Fprintf(&key, "%q %q %q %q %s\n", c.Item, c.Key, c.From, c.To, c.Waits.text())
		if spec.Worse(c.Class, n.Class) || n.Why == "" || waits && c.Waits == nil && c.Class == n.Class {
			n.Class, n.Why, waits = c.Class, c.why, c.Waits != nil
		}
	}
	if known, ok := p.same[key.String()]; ok {
		n.Changes = known
	} else if len(changes) > 0 {
		p.same[key.String()] = changes
		n.Changes = changes
	}
	return n
}

// Plan returns the result, nodes in order of their names.
func (p *Planner) Plan() *Plan {
	slices.SortFunc(p.plan.Nodes, func(a, b NodePlan) int { return plain.Natural(a.Name, b.Name) })
	for i := range p.plan.Nodes {
		n := &p.plan.Nodes[i]
		if givesAnother(n.Changes) {
			n.Rollout = p.UnderWay[n.Name]
		}
		if n.Held == "" {
			n.NoKey = p.noKey(n.Name)
		}
	}
	p.plan.Layers = []LayerPlan{}
	def := p.site.DefaultRecipe()
	for i, v := range p.variants {
		l := LayerPlan{Variant: v.Name, Recipe: digest.FromHex(site.RecipeID(v.Recipe)), Action: spec.ClassNone,
			Nodes: len(v.Nodes), Differs: differs(def, v.Recipe),
			From: slices.Sorted(maps.Keys(p.froms[i]))}
		switch next := p.next[i]; {
		case next == nil:
			l.Action = ActionBuild
		case len(l.From) > 0:
			l.Action = spec.ActionChange
		}
		if next := p.next[i]; next != nil {
			l.Digest = next.Digest
			l.Fast = next.Fast && slices.ContainsFunc(l.From, func(from string) bool {
				old := p.publishedLocked(from)
				return old != nil && !old.Fast
			})
		}
		if p.Advise != nil {
			l.Advisories = plain.Each(l.From, func(from string) *advisory.Change { return p.Advise(v, p.publishedLocked(from), p.next[i]) })
		}
		p.plan.Layers = append(p.plan.Layers, l)
	}
	return p.plan
}

// noKey names the items that a node does without.
func (p *Planner) noKey(node string) []string {
	if len(p.site.Secrets()) == 0 {
		return nil
	}
	o, err := p.site.Overlay(node, "")
	if err != nil {
		return nil // it left the site
	}
	return plain.Each(o.Keyless(), func(k spec.ItemKey) string { return k.Item + " " + k.Key })
}

// differs names the parts of a recipe that are not the default's.
func differs(def, r spec.Recipe) string {
	var parts []string
	for _, m := range module.Conf() {
		if m.Baked == nil {
			continue
		}
		a, errA := spec.Encode(m.Baked(&def))
		b, errB := spec.Encode(m.Baked(&r))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			parts = append(parts, m.Name)
		}
	}
	return strings.Join(parts, " ")
}
