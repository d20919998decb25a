// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
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
	change := Change{Change: spec.Change{Item: "layer", Key: "layer", From: from, To: to, Action: spec.ActionChange},
		Class: class, Fetch: fetch, why: why}
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
	a, b := old.AppArmor.Modes(), next.AppArmor.Modes()
	compareRecipes(c, old.Made, next.Made, map[string]bool{"apt": true})
	compareTexts(c, "apt", howInstalled(old.Made), howInstalled(next.Made))
	compareTexts(c, "apparmor", a, b)
}

func packages(l *Layer) map[string]string {
	return plain.Map(l.Packages, func(p spec.InstalledPackage) (name, version string) {
		if p.Arch != "all" && p.Arch != l.Arch && p.Arch != "" {
			p.Name += ":" + p.Arch
		}
		return p.Name, p.Version
	})
}

var releaseForm = regexp.MustCompile(`^[0-9][^-]*(?:-[0-9]+)*-(.*)$`)

// sameFlavour reports whether a kernel of a release may come from a package, as
// 6.12.48+deb13-cloud-amd64 from linux-image-cloud-amd64.
func sameFlavour(release, pkg string) bool {
	flavour, ok := strings.CutPrefix(pkg, "linux-image-")
	m := releaseForm.FindStringSubmatch(release)
	return !ok || m == nil || release == flavour || m[1] == flavour
}

// compareRecipes compares what two layers are made of, field by field. Without
// are items that something better is known of.
func compareRecipes(c *comparison, old, next spec.Recipe, without map[string]bool) {
	a, b := flatten(old), flatten(next)
	for _, item := range []string{"base", "apt", "uamlite", "apparmor", "perm"} {
		if !without[item] {
			compareTexts(c, item, a[item], b[item])
		}
	}
}

// howInstalled returns the parts of a recipe on packages but their list: answers,
// holds, lists of what may not be there, archives.
func howInstalled(r spec.Recipe) map[string]string {
	apt := flatten(r)["apt"]
	for _, p := range r.Packages.Install {
		delete(apt, p.Name)
	}
	return apt
}

// compareTexts adds what differs between two maps, in order of the keys. The
// fields of a thing that comes or goes as a whole are left out.
func compareTexts(c *comparison, item string, old, next map[string]string) {
	keys := map[string]string{} // either may be nil
	maps.Copy(keys, old)
	maps.Copy(keys, next)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, b := old[key], next[key]
		if owner, _, field := strings.Cut(key, "/"); field && (old[owner] == "") != (next[owner] == "") {
			continue
		}
		if a != b {
			c.add(item, key, a, b)
		}
	}
}

// flatten returns a recipe as texts by item and key, "name" or "name/field". A
// secret is shown by its digest.
func flatten(r spec.Recipe) map[string]map[string]string {
	out := map[string]map[string]string{}
	put := func(item, key, text string) {
		if text == "" {
			return
		}
		if out[item] == nil {
			out[item] = map[string]string{}
		}
		out[item][key] = text
	}
	base, _ := spec.Encode(r.Base) // plain data
	put("base", "system", string(base))
	put("base", "kernel", r.Kernel)
	put("base", "modules", strings.Join(r.Modules, " "))
	put("base", "disk programs", yes(r.Programs))
	flattenPackages(r.Packages, func(key, text string) { put("apt", key, text) })
	flattenAccounts(r.Accounts, func(key, text string) { put("uamlite", key, text) })
	for _, f := range r.AppArmor.Profiles {
		put("apparmor", "file "+f.File, short(f.Text))
	}
	put("apparmor", "complain", yes(r.AppArmor.Complain))
	if r.Perm != nil {
		for _, x := range r.Perm.Paths {
			put("perm", x.Path, strings.TrimSpace(x.Mode+" "+x.Owner+":"+x.Group))
		}
	}
	return out
}

func flattenPackages(p spec.Packages, put func(key, text string)) {
	for _, x := range p.Install {
		put(x.Name, cmp.Or(x.Version, "installed")+strings.TrimSuffix(" from "+x.From, " from "))
		for _, d := range x.Debconf {
			put(x.Name+"/debconf "+d.Question, d.Type+" "+short(d.Answer))
		}
	}
	for _, name := range p.Blacklist {
		put("blacklist "+name, "never")
	}
	for _, name := range p.Whitelist {
		put("whitelist "+name, "kept")
	}
	for _, name := range p.Hold {
		put("hold "+name, "held")
	}
	for _, r := range p.Repositories {
		data, _ := spec.Encode(r) // plain data
		put("repository "+r.ID, r.URL+" "+strings.Join(r.Distributions, " ")+" ("+short(string(data))+")")
	}
	put("upgrade", yes(p.Upgrade))
	put("allow downgrade", yes(p.AllowDowngrade))
	put("strict", yes(p.Strict))
	put("recommends", yes(p.Recommends))
	put("exclusive", yes(p.Exclusive))
}

func flattenAccounts(a spec.Accounts, put func(key, text string)) {
	for _, u := range a.Users {
		put(u.Name, "account")
		if u.UID != 0 {
			put(u.Name+"/uid", strconv.Itoa(u.UID))
		}
		put(u.Name+"/sudo", yes(u.Sudo))
		if u.Password != "" {
			put(u.Name+"/password", short(u.Password))
		}
		if u.Keys != nil {
			put(u.Name+"/keys", strconv.Itoa(len(u.Keys))+" ("+short(strings.Join(u.Keys, "\n"))+")")
		}
		put(u.Name+"/groups", strings.Join(u.Groups, " "))
		put(u.Name+"/shell", u.Shell)
	}
	put("purge expired", yes(a.PurgeExpired))
	put("builtin", a.Builtin)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
