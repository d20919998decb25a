// SPDX-License-Identifier: Apache-2.0

// An [Order] says which units of a system come before which, as far as unit files do: with
// drop-ins, masks, aliases, instances, links, and what systemd adds by itself, see systemd.unit(5).
// Not read are units of generators, and RequiresMountsFor=.

package units

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
)

// unitDirs are where unit files are, the first one first, see systemd.unit(5).
var unitDirs = []string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}

// implied lists the order that systemd adds to units with default dependencies, by type: what they
// come after, and before.
var implied = map[string]struct{ after, before []string }{
	".service":   {after: []string{"sysinit.target", "basic.target"}},
	".socket":    {after: []string{"sysinit.target"}, before: []string{"sockets.target"}},
	".timer":     {after: []string{"sysinit.target"}, before: []string{"timers.target"}},
	".path":      {after: []string{"sysinit.target"}, before: []string{"paths.target"}},
	".mount":     {after: []string{"local-fs-pre.target"}, before: []string{"local-fs.target"}},
	".automount": {after: []string{"local-fs-pre.target"}, before: []string{"local-fs.target"}},
	".swap":      {before: []string{"swap.target"}},
}

// needs are the words by which a unit brings others along; a target comes after them.
var needs = []string{"Wants", "Requires", "Requisite", "BindsTo", "Upholds"}

// Order is that of the units of a system.
type Order struct {
	root  string
	units map[string]*unitOrder // nil where there is no file, or a mask
	first map[string]map[string]bool
}

type unitOrder struct {
	needs    []string
	defaults bool
}

// ReadOrder reads the unit files of the system that has its root at a path.
func ReadOrder(root string) *Order {
	o := &Order{root: root, units: map[string]*unitOrder{}, first: map[string]map[string]bool{}}
	for _, dir := range unitDirs {
		entries, _ := os.ReadDir(filepath.Join(root, dir)) // one that is not there has none
		for _, e := range entries {
			if !strings.Contains(e.Name(), "@.") {
				o.load(e.Name())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.units)) { // of two targets that need each other the first one comes after
		u := o.units[name]
		if u == nil || !u.defaults || path.Ext(name) != ".target" {
			continue
		}
		for _, other := range u.needs {
			if with := o.units[other]; with != nil && with.defaults && !o.first[other][name] {
				o.add(other, name)
			}
		}
	}
	return o
}

// Has reports whether there is a unit.
func (o *Order) Has(name string) bool { return o.units[o.load(name)] != nil }

// After has a unit come after another, unless that would be a circle.
func (o *Order) After(name, other string) bool {
	name, other = o.load(name), o.load(other)
	if name == other || o.precedes(name, other, map[string]bool{}) {
		return false
	}
	o.add(other, name)
	return true
}

// precedes reports whether a unit comes before another, in one step or many.
func (o *Order) precedes(name, other string, seen map[string]bool) bool {
	if o.first[other][name] {
		return true
	}
	for by := range o.first[other] {
		if !seen[by] && o.units[by] != nil { // what is never started is not waited for
			seen[by] = true
			if o.precedes(name, by, seen) {
				return true
			}
		}
	}
	return false
}

func (o *Order) add(first, then string) {
	if o.first[then] == nil {
		o.first[then] = map[string]bool{}
	}
	o.first[then][first] = true
}

// load reads a unit, and those that it names, and returns its own name.
func (o *Order) load(name string) string {
	name, text := o.find(name)
	if _, known := o.units[name]; known || rules.Unit(name) != nil {
		return name
	}
	o.units[name] = nil
	if text == "" {
		return name
	}
	says := rules.UnitSection(text, "Unit")
	words := func(list []string) (out []string) {
		for _, word := range list {
			if word, err := rules.UnitSpecifiers(name, word); err == nil {
				out = append(out, o.load(word))
			}
		}
		return out
	}
	u := &unitOrder{defaults: !slices.Contains([]string{"no", "false", "off", "0"},
		strings.ToLower(strings.Join(says["DefaultDependencies"], "")))}
	o.units[name] = u
	after, before, kind := says["After"], says["Before"], path.Ext(name)
	if u.defaults {
		after, before = append(after, implied[kind].after...), append(before, implied[kind].before...)
	}
	own := rules.UnitSection(text, strings.ToUpper(kind[1:2])+kind[2:])
	switch kind {
	case ".socket", ".timer", ".path":
		if started := append(own["Service"], own["Unit"]...); len(started) > 0 {
			before = append(before, started...)
		} else {
			before = append(before, strings.TrimSuffix(name, kind)+".service")
		}
	case ".service":
		if len(own["BusName"]) > 0 {
			after = append(after, "dbus.socket")
		}
	}
	for _, other := range words(after) {
		o.add(other, name)
	}
	for _, other := range words(before) {
		o.add(name, other)
	}
	for _, key := range needs {
		u.needs = append(u.needs, words(says[key])...)
	}
	for _, dir := range unitDirs {
		linked, _ := filepath.Glob(filepath.Join(o.root, dir, name+".[wr]*", "*")) // the pattern is ours
		for _, at := range linked {
			u.needs = append(u.needs, o.load(filepath.Base(at)))
		}
	}
	return name
}

// find returns the name that a unit has when it is called so, and its text with drop-ins; "" where
// there is none.
func (o *Order) find(name string) (own, text string) {
	for range 8 { // aliases of aliases
		prefix, instance, _ := strings.Cut(strings.TrimSuffix(name, path.Ext(name)), "@")
		files := []string{name}
		if instance != "" {
			files = append(files, prefix+"@"+path.Ext(name))
		}
		at := o.file(files)
		switch base := path.Base(at); {
		case at == "" || at == "/dev/null":
			return name, ""
		case slices.Contains(files, base):
			data, _ := os.ReadFile(filepath.Join(o.root, at)) // one that cannot be read says nothing to systemd either
			return name, string(data) + "\n" + o.dropIns(append(files, strings.TrimPrefix(path.Ext(name), ".")))
		default:
			if template, ok := strings.CutSuffix(base, "@"+path.Ext(base)); ok && instance != "" {
				base = template + "@" + instance + path.Ext(base)
			}
			name = base
		}
	}
	return name, ""
}

// file returns where the first of some files of units is, or what it is a link to.
func (o *Order) file(names []string) string {
	for _, name := range names {
		for _, dir := range unitDirs {
			at := dir + "/" + name
			to, err := os.Readlink(filepath.Join(o.root, at))
			if err == nil && path.Base(to) != name { // else it leads to a file in a later one
				return to
			}
			if _, none := os.Lstat(filepath.Join(o.root, at)); none == nil && err != nil {
				return at
			}
		}
	}
	return ""
}

// dropIns are the texts of those of a unit that has some names, the most exact one first.
func (o *Order) dropIns(names []string) string {
	files := map[string]string{}
	for _, name := range slices.Backward(names) {
		for _, dir := range slices.Backward(unitDirs) {
			found, _ := filepath.Glob(filepath.Join(o.root, dir, name+".d", "*.conf")) // the pattern is ours
			for _, at := range found {
				files[filepath.Base(at)] = at
			}
		}
	}
	var text strings.Builder
	for _, base := range slices.Sorted(maps.Keys(files)) {
		data, _ := os.ReadFile(files[base]) // one that cannot be read says nothing to systemd either
		text.Write(append(data, '\n'))
	}
	return text.String()
}

// MountUnit is the name of the unit of a mount, see systemd-escape(1).
func MountUnit(path string) string {
	var name strings.Builder
	for i, b := range []byte(strings.Trim(path, "/")) {
		switch {
		case b == '/':
			name.WriteByte('-')
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == ':', b == '_', b == '.' && i > 0:
			name.WriteByte(b)
		default:
			fmt.Fprintf(&name, `\x%02x`, b)
		}
	}
	return name.String() + ".mount"
}
