// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Layers compares two layers that are there: what is in them, and what they were made of.
func Layers(old, next *spec.Layer, was, is spec.Recipe) []Change {
	c := &comparison{}
	compareTexts(c, "kernel", map[string]string{"release": old.Kernel.Release}, map[string]string{"release": next.Kernel.Release})
	compareTexts(c, "apt", packages(old), packages(next))
	a, b := old.AppArmor.Modes(), next.AppArmor.Modes()
	compareRecipes(c, was, is, map[string]bool{"apt": true})
	compareTexts(c, "apt", howInstalled(was), howInstalled(is))
	compareTexts(c, "apparmor", a, b)
	return c.changes
}

func packages(l *spec.Layer) map[string]string {
	return plain.Map(l.Packages, func(p spec.InstalledPackage) (name, version string) {
		if p.Arch != "all" && p.Arch != l.Arch && p.Arch != "" {
			p.Name += ":" + p.Arch
		}
		return p.Name, p.Version
	})
}

// Recipes compares what two layers are made of.
func Recipes(was, is spec.Recipe) []Change {
	c := &comparison{}
	compareRecipes(c, was, is, nil)
	return c.changes
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
