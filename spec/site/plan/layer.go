// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/module"
)

// layerChanges compares the recipe of a node's variant with the published layer,
// a digest or none.
// A layer's description tells what came out of its recipe, not the recipe
// itself, so parts are compared as far as it shows them.
func (p *Planner) layerChanges(node, published string) []Change {
	i, ok := p.variant[node]
	if !ok {
		if published == "" {
			return nil
		}
		return []Change{{Change: spec.Change{Item: "layer", Key: "layer", From: published, Action: spec.ActionRemove},
			Class: spec.ClassCold, why: "the site has no layer any more"}}
	}
	v := p.variants[i]
	to := v.Name + " " + p.recipes[i]
	if published == "" {
		return []Change{{Change: spec.Change{Item: "layer", Key: "layer", To: to, Action: spec.ActionAdd}, Class: spec.ClassCold, why: "it boots into its first layer"}}
	}
	old := p.layer(published)
	if old == nil {
		return []Change{{Change: spec.Change{Item: "layer", Key: "layer", From: published, To: to, Action: spec.ActionChange},
			Class: spec.ClassKexec, why: "the published layer cannot be read, so its kernel may be another"}}
	}
	p.froms[i]["sha256:"+strings.TrimPrefix(old.Recipe, "sha256:")] = true
	if strings.TrimPrefix(old.Recipe, "sha256:") == strings.TrimPrefix(p.recipes[i], "sha256:") {
		return nil
	}
	if p.old[old] == nil {
		p.old[old] = make([][]Change, len(p.variants))
	}
	if p.old[old][i] == nil {
		p.old[old][i] = compareLayer(old, v.Recipe, published, to)
	}
	return p.old[old][i]
}

func compareLayer(old *spec.Layer, r spec.Recipe, from, to string) []Change {
	class, why := spec.ClassSoftReboot, "the root is stacked anew; kexec if the new layer brings another kernel"
	switch {
	case old.Arch != r.Arch:
		class, why = spec.ClassCold, "the architecture changes"
	case !sameFlavour(old.Kernel.Release, r.Kernel):
		class, why = spec.ClassKexec, "the kernel changes"
	}
	out := []Change{{Change: spec.Change{Item: "layer", Key: "layer", From: from, To: to, Action: spec.ActionChange}, Class: class, why: why}}
	c := &comparison{}
	installed := map[string]string{}
	for _, p := range old.Packages {
		installed[p.Name] = p.Version
	}
	for _, p := range r.Packages.Install {
		name, _, _ := strings.Cut(p.Name, ":")
		version, ok := installed[name]
		switch {
		case !ok && p.Version == "":
			c.add("apt", p.Name, "", "installed")
		case !ok:
			c.add("apt", p.Name, "", p.Version)
		case p.Version != "" && p.Version != version:
			c.add("apt", p.Name, version, p.Version)
		}
	}
	for _, name := range r.Packages.Blacklist {
		if v, ok := installed[name]; ok {
			c.add("apt", name, v, "")
		}
	}
	accounts := map[string]bool{}
	for _, a := range old.Accounts {
		accounts[a.Name] = a.State == "active" || a.State == ""
	}
	for _, u := range r.Accounts.Users {
		if !accounts[u.Name] {
			c.add("uamlite", u.Name, "", "account")
		}
		delete(accounts, u.Name)
	}
	compareAppArmor(c, old, r)
	for _, a := range old.Accounts {
		if accounts[a.Name] && a.UID >= 1000 && a.UID < 60000 {
			c.add("uamlite", a.Name, "account", "")
		}
	}
	for i := range c.changes {
		c.changes[i].Class, c.changes[i].why = class, why
	}
	return append(out, c.changes...)
}

func compareAppArmor(c *comparison, old *spec.Layer, r spec.Recipe) {
	mode := "enforce"
	if r.AppArmor.Complain {
		mode = "complain"
	}
	loaded := map[string]string{}
	for _, p := range old.AppArmor.Profiles {
		loaded[p.Name] = p.Mode
	}
	for _, f := range r.AppArmor.Profiles {
		for _, name := range module.ProfileNames(f.Text) {
			if loaded[name] != mode {
				c.add("apparmor", name, loaded[name], mode)
			}
			delete(loaded, name)
		}
	}
	for _, p := range old.AppArmor.Profiles {
		// A child or hat belongs to its parent.
		if parent, _, _ := strings.Cut(p.Name, "//"); loaded[p.Name] != "" && loaded[parent] != "" {
			c.add("apparmor", p.Name, p.Mode, "")
		}
	}
}

var releaseForm = regexp.MustCompile(`^[0-9][^-]*(?:-[0-9]+)*-(.*)$`)

// sameFlavour says whether a kernel of a release may come from a package, as
// 6.12.48+deb13-cloud-amd64 from linux-image-cloud-amd64.
func sameFlavour(release, pkg string) bool {
	flavour, ok := strings.CutPrefix(pkg, "linux-image-")
	m := releaseForm.FindStringSubmatch(release)
	return !ok || m == nil || release == flavour || m[1] == flavour
}
