// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
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
	c := &comparison{}
	compareRecipes(c, old.Made, v.Recipe, nil)
	return moved(published, to, 0, &old.Layer, described(old, v.Recipe), c)
}

// leaves is the change of a node that has no layer any more.
func leaves(from, why string) []Change {
	return []Change{{Change: spec.Change{Item: "layer", Key: "layer", From: from, Action: spec.ActionRemove}, Class: spec.ClassCold, why: why}}
}

// between are the changes of a node that goes from one layer, or none, to another: the one
// rule for what is to come and for what was. A layer that cannot be read is nil.
func between(layers Layers, from, to string, old, next *Layer) []Change {
	change := Change{Change: spec.Change{Item: "layer", Key: "layer", From: from, To: to, Action: spec.ActionChange}, Class: spec.ClassKexec,
		why: "a layer cannot be read, so its kernel may be another"}
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
	c := &comparison{}
	compareBuilt(c, old, next)
	return moved(from, to, layers.Fetch(old, next), &old.Layer, &next.Layer, c)
}

// moved puts the change of the layer before what differs in it, all of one class.
func moved(from, to string, fetch int64, old, next *spec.Layer, c *comparison) []Change {
	class, why := spec.LayerMove(old, next)
	for i := range c.changes {
		c.changes[i].Class, c.changes[i].why = class, why
	}
	change := Change{Change: spec.Change{Item: "layer", Key: "layer", From: from, To: to, Action: spec.ActionChange}, Class: class, Fetch: fetch, why: why}
	return append([]Change{change}, c.changes...)
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

// compareBuilt compares two layers that are there: what is in them, and what they
// were made of.
func compareBuilt(c *comparison, old, next *Layer) {
	compareTexts(c, "kernel", map[string]string{"release": old.Kernel.Release}, map[string]string{"release": next.Kernel.Release})
	compareTexts(c, "apt", packages(old), packages(next))
	a, b := profiles(old), profiles(next)
	compareRecipes(c, old.Made, next.Made, map[string]bool{"apt": true})
	compareTexts(c, "apt", howInstalled(old.Made), howInstalled(next.Made))
	compareTexts(c, "apparmor", a, b)
}

func packages(l *Layer) map[string]string {
	out := map[string]string{}
	for _, p := range l.Packages {
		name := p.Name
		if p.Arch != "all" && p.Arch != l.Arch && p.Arch != "" {
			name += ":" + p.Arch
		}
		out[name] = p.Version
	}
	return out
}

func profiles(l *Layer) map[string]string {
	out := map[string]string{}
	for _, p := range l.AppArmor.Profiles {
		out[p.Name] = p.Mode
	}
	return out
}

var releaseForm = regexp.MustCompile(`^[0-9][^-]*(?:-[0-9]+)*-(.*)$`)

// sameFlavour reports whether a kernel of a release may come from a package, as
// 6.12.48+deb13-cloud-amd64 from linux-image-cloud-amd64.
func sameFlavour(release, pkg string) bool {
	flavour, ok := strings.CutPrefix(pkg, "linux-image-")
	m := releaseForm.FindStringSubmatch(release)
	return !ok || m == nil || release == flavour || m[1] == flavour
}
