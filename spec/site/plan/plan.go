// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/module"
)

// Plan is what publishing a site would change.
type Plan struct {
	Nodes  []NodePlan  `json:"nodes"`
	Layers []LayerPlan `json:"layers"`
}

// NodePlan is what changes on one node, and how much that disturbs it.
type NodePlan struct {
	Name    string   `json:"name"`
	Class   string   `json:"class"` // one of spec's classes, the worst of its changes
	Why     string   `json:"why,omitempty"`
	Changes []Change `json:"changes"`
}

// Change is a published value that differs from the site's.
type Change struct {
	spec.Change
	Class string `json:"class"`

	why string
}

// LayerPlan is a variant of the system layer that the site needs.
type LayerPlan struct {
	Variant string `json:"variant"`
	Recipe  string `json:"recipe"`         // sha256:… of it
	Action  string `json:"action"`         // none, add or change
	From    string `json:"from,omitempty"` // recipes that its nodes run now, sorted
	Nodes   int    `json:"nodes"`
	Differs string `json:"differs,omitempty"` // parts in which it differs from the default variant
}

// Changed says whether there is anything to do.
func (p *Plan) Changed() bool {
	return slices.ContainsFunc(p.Nodes, func(n NodePlan) bool { return len(n.Changes) > 0 })
}

// Planner compares what is published with a site, one node at a time, so that
// the published overlays need not be held all at once. It may be used by several
// goroutines.
type Planner struct {
	mu       sync.Mutex
	site     *site.Site
	layer    func(digest string) *spec.Layer
	variants []site.Variant
	recipes  []string // by variant
	variant  map[string]int
	froms    []map[string]bool // recipes now in use, by variant
	plan     *Plan
	same     map[string][]Change // equal lists are kept once
	old      map[*spec.Layer][][]Change
	seen     map[int][]seenLayer
}

// seenLayer is what the overlays of a variant's nodes say of their layer.
type seenLayer struct{ digest, variant string }

// New returns a planner of a site. Layer gives the description of a published
// layer by the digest of its manifest, or nil when there is none.
func New(s *site.Site, layer func(digest string) *spec.Layer) *Planner {
	p := &Planner{site: s, layer: layer, variant: map[string]int{}, plan: &Plan{Nodes: []NodePlan{}, Layers: []LayerPlan{}},
		same: map[string][]Change{}, old: map[*spec.Layer][][]Change{}, seen: map[int][]seenLayer{}}
	if s.HasLayer() {
		p.variants, _ = s.Variants() // fails only without a layer
	}
	for i, v := range p.variants {
		p.recipes = append(p.recipes, "sha256:"+site.RecipeID(v.Recipe))
		p.froms = append(p.froms, map[string]bool{})
		for _, n := range v.Nodes {
			p.variant[n] = i
		}
	}
	return p
}

// Compare compares all nodes at once: published by node's name, layers by digest.
func Compare(s *site.Site, published map[string]*spec.Overlay, layers map[string]*spec.Layer) *Plan {
	p := New(s, func(digest string) *spec.Layer { return layers[digest] })
	for _, n := range s.Nodes() {
		p.Add(n.Name, published[n.Name])
	}
	for name := range published {
		if !s.Has(name) {
			p.Gone(name)
		}
	}
	return p.Plan()
}

// Add compares one node of the site with what is published for it, nil when
// nothing is.
func (p *Planner) Add(node string, published *spec.Overlay) {
	want, err := p.site.Overlay(node, "")
	if err != nil {
		return // it is none of the site's
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if published != nil {
		p.see(node, seenLayer{published.Layer, published.Variant})
	}
	var changes []Change
	if published == nil {
		changes = []Change{{Change: spec.Change{Item: "node", Key: node, To: "published", Action: spec.ActionAdd}, Class: spec.ClassCold, why: "it boots with this site for the first time"}}
		published = &spec.Overlay{}
	} else {
		changes = compareOverlays(published, want)
	}
	changes = append(changes, p.layerChanges(node, published.Layer)...)
	p.plan.Nodes = append(p.plan.Nodes, p.nodePlan(node, changes))
}

// AddDigest compares a node by its published overlay's digest alone. It returns
// false when that does not settle it: then the overlay is to be read and added.
func (p *Planner) AddDigest(node, digest string) bool {
	if !p.site.Has(node) {
		return false
	}
	p.mu.Lock()
	known := slices.Clone(p.seen[p.variantOf(node)])
	p.mu.Unlock()
	if !p.site.HasLayer() {
		known = []seenLayer{{}}
	}
	for _, k := range known {
		data, err := p.site.Compile(node, k.digest, k.variant)
		if err == nil && fmt.Sprintf("sha256:%x", sha256.Sum256(data)) == digest {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.plan.Nodes = append(p.plan.Nodes, p.nodePlan(node, p.layerChanges(node, k.digest)))
			return true
		}
	}
	return false
}

func (p *Planner) variantOf(node string) int {
	if i, ok := p.variant[node]; ok {
		return i
	}
	return -1
}

// see remembers a layer: most nodes of a variant run the same.
func (p *Planner) see(node string, l seenLayer) {
	i := p.variantOf(node)
	if !slices.Contains(p.seen[i], l) && len(p.seen[i]) < 4 {
		p.seen[i] = append(p.seen[i], l)
	}
}

// Gone notes a node that is published but not in the site any more.
func (p *Planner) Gone(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan.Nodes = append(p.plan.Nodes, p.nodePlan(node, []Change{{
		Change: spec.Change{Item: "node", Key: node, From: "published", Action: spec.ActionRemove},
		Class:  spec.ClassNone, why: "it keeps what it has and is sent nothing more"}}))
}

func (p *Planner) nodePlan(node string, changes []Change) NodePlan {
	n := NodePlan{Name: node, Class: spec.ClassNone, Changes: []Change{}}
	var key strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&key, "%q %q %q %q\n", c.Item, c.Key, c.From, c.To)
		if worse(c.Class, n.Class) || n.Why == "" {
			n.Class, n.Why = c.Class, c.why
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

// Plan is the result, nodes in order of their names.
func (p *Planner) Plan() *Plan {
	slices.SortFunc(p.plan.Nodes, func(a, b NodePlan) int { return strings.Compare(a.Name, b.Name) })
	p.plan.Layers = []LayerPlan{}
	def := p.site.DefaultRecipe()
	for i, v := range p.variants {
		l := LayerPlan{Variant: v.Name, Recipe: p.recipes[i], Action: spec.ClassNone, Nodes: len(v.Nodes), Differs: differs(def, v.Recipe)}
		var from []string
		for r := range p.froms[i] {
			if r != p.recipes[i] {
				from = append(from, r)
			}
		}
		slices.Sort(from)
		l.From = strings.Join(from, " ")
		switch {
		case len(from) > 0:
			l.Action = spec.ActionChange
		case len(p.froms[i]) == 0:
			l.Action = spec.ActionAdd
		}
		p.plan.Layers = append(p.plan.Layers, l)
	}
	return p.plan
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
