// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
)

// layerChanges compares the layer that a node has, a digest or none, with the one
// that publish would name, or with the site's recipe where that is to be built.
func (p *Planner) layerChanges(node, published string) []Change {
	i, ok := p.variant[node]
	if !ok {
		if published == "" {
			return nil
		}
		return leaves(published, "the site has no layer any more")
	}
	next := p.next[i]
	if next != nil && next.Digest == published {
		return nil
	}
	m := move{published, i}
	if known, ok := p.moves[m]; ok {
		return known
	}
	p.moves[m] = p.moveChanges(published, p.variants[i], next)
	if published != "" {
		p.froms[i][published] = true
	}
	return p.moves[m]
}

// moveChanges are those of a node that goes from a published layer, or none, to the next
// one of its variant, or the one that is to be built.
func (p *Planner) moveChanges(published string, v site.Variant, next *Layer) []Change {
	if next != nil {
		return between(p.layers, published, next.Digest, p.publishedLocked(published), next)
	}
	to := "to be built, recipe " + digest.FromHex(site.RecipeID(v.Recipe)[:12])
	old := p.publishedLocked(published)
	switch {
	case old == nil:
		return between(p.layers, published, to, nil, nil)
	case digest.Hex(old.Recipe) == site.RecipeID(v.Recipe):
		// What is current is of another recipe, what the node has is not: publish
		// refuses until the site is built again.
		return nil
	}
	return moved(layerChange(published, to), &old.Layer, described(old, v.Recipe), compare.Recipes(old.Made, v.Recipe))
}

// leaves is the change of a node that has no layer any more.
func leaves(from, why string) []Change {
	return []Change{because(spec.Change{Item: "layer", Key: "layer", From: from, Action: spec.ActionRemove}, spec.ClassCold, why)}
}

// layerChange is the change of a node from one layer to another, of which nothing more is known.
func layerChange(from, to string) Change {
	return because(spec.Change{Item: "layer", Key: "layer", From: from, To: to, Action: spec.ActionChange}, spec.ClassKexec,
		"a layer cannot be read, so its kernel may be another")
}

// between are the changes of a node that goes from one layer, or none, to another: the one
// rule for what is to come and for what was. A layer that cannot be read is nil.
func between(layers Layers, from, to string, old, next *Layer) []Change {
	change := layerChange(from, to)
	switch {
	case from == "":
		change.Action, change.Class, change.why = spec.ActionAdd, spec.ClassCold, "it boots into its first layer"
		if next != nil {
			change.Fetch = layers.Fetch(nil, next)
		}
		return []Change{change}
	case old == nil || next == nil:
		return []Change{change}
	}
	change.Fetch = layers.Fetch(old, next)
	return moved(change, &old.Layer, &next.Layer, compare.Layers(&old.Layer, &next.Layer, old.Made, next.Made))
}

// moved puts the change of the layer before what differs in it, all of one class.
func moved(change Change, old, next *spec.Layer, within []compare.Change) []Change {
	all := append([]Change{change}, changes(within)...)
	class, why := spec.LayerMove(old, next)
	for i := range all {
		all[i].Class, all[i].why = class, why
	}
	return all
}

// described returns the known facts on a layer that is to be built: its architecture, and
// whether its kernel may be the same. A build of a recipe that differs
// in accounts only makes the other images again as they are.
func described(old *Layer, r spec.Recipe) *spec.Layer {
	if onlyAccounts(old.Made, r) {
		return &old.Layer
	}
	to := &spec.Layer{Arch: r.Arch, Kernel: old.Kernel}
	if !sameFlavour(old.Kernel.Release, r.Kernel) {
		to.Kernel = spec.KernelBlob{Release: r.Kernel}
	}
	return to
}

func onlyAccounts(a, b spec.Recipe) bool {
	a.Accounts, b.Accounts = spec.Accounts{}, spec.Accounts{}
	return site.RecipeID(a) == site.RecipeID(b)
}

var releaseForm = regexp.MustCompile(`^[0-9][^-]*(?:-[0-9]+)*-(.*)$`)

// sameFlavour reports whether a kernel of a release may come from a package, as
// 6.12.48+deb13-cloud-amd64 from linux-image-cloud-amd64.
func sameFlavour(release, pkg string) bool {
	flavour, ok := strings.CutPrefix(pkg, "linux-image-")
	m := releaseForm.FindStringSubmatch(release)
	return !ok || m == nil || release == flavour || m[1] == flavour
}

// Difference is a node in two states of a fleet. An overlay is nil where the node was
// not published; both are when its content is the same.
type Difference struct {
	Node             string
	From, To         *spec.Overlay
	HoldFrom, HoldTo string // as people read them
}

// Differences compares nodes one after the other, and each two layers once.
type Differences struct {
	layers Layers
	moves  map[[2]string][]Change
}

// NewDifferences returns what knows layers as a planner does.
func NewDifferences(layers Layers) *Differences {
	return &Differences{layers, map[[2]string][]Change{}}
}

// Plan returns the changes from the one state to the other.
func (all *Differences) Plan(d Difference) NodePlan {
	n := NodePlan{Name: d.Node, Class: spec.ClassNone, Changes: []Change{}}
	switch {
	case d.From == nil && d.To == nil:
	case d.From == nil:
		n.Changes = append(n.Changes, because(spec.Change{Item: "node", Key: d.Node, To: "published", Action: spec.ActionAdd},
			spec.ClassCold, "it came"))
	case d.To == nil:
		n.Changes = append(n.Changes, because(spec.Change{Item: "node", Key: d.Node, From: "published", Action: spec.ActionRemove},
			spec.ClassNone, "it left"))
	default:
		n.Changes = append(n.Changes, changes(compare.Overlays(d.From, d.To))...)
		n.Changes = append(n.Changes, all.between(d.From.Layer, d.To.Layer)...)
	}
	if d.HoldFrom != d.HoldTo {
		h := compare.Text("hold", "node", d.HoldFrom, d.HoldTo)
		n.Changes = append(n.Changes, because(h.Change, spec.ClassNone, "a hold begins or ends"))
	}
	for _, c := range n.Changes {
		if spec.Worse(c.Class, n.Class) || n.Why == "" {
			n.Class, n.Why = c.Class, c.why
		}
	}
	return n
}

func (all *Differences) between(from, to string) []Change {
	pair := [2]string{from, to}
	known, ok := all.moves[pair]
	switch {
	case ok || from == to:
		return known
	case to == "":
		known = leaves(from, "it has no layer any more")
	default:
		var old *Layer
		if from != "" {
			old = all.layers.Published(from)
		}
		known = between(all.layers, from, to, old, all.layers.Published(to))
	}
	all.moves[pair] = known
	return known
}
