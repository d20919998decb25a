// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Use is a value with the nodes that have it.
type Use struct {
	Setting
	Unset bool     `json:"unset,omitempty"` // nobody wrote the setting for these nodes
	Nodes []string `json:"nodes"`
}

// Uses are the values of settings: by path, the value of most nodes first, and in the end the
// nodes that have none.
type Uses []Use

// UsesOf lists the values that nodes have of the settings at key and below it. A key that no node
// has is an error: an empty list would say that all is well.
func UsesOf(key string, nodes []*Explanation) (Uses, error) {
	found := map[string][]*Use{} // by path
	for _, e := range nodes {
		for _, s := range e.Settings() {
			if !s.Has(key) {
				continue
			}
			i := slices.IndexFunc(found[s.Path], func(u *Use) bool { return u.Value == s.Value && same(u.Origin, s.Origin) })
			if i < 0 {
				i, found[s.Path] = len(found[s.Path]), append(found[s.Path], &Use{Setting: s})
			}
			found[s.Path][i].Nodes = append(found[s.Path][i].Nodes, e.Node)
		}
	}
	if len(found) == 0 {
		return nil, noSetting(key, nodes)
	}
	var list Uses
	for _, path := range slices.Sorted(maps.Keys(found)) {
		uses, have := found[path], map[string]bool{}
		slices.SortStableFunc(uses, func(a, b *Use) int { return len(b.Nodes) - len(a.Nodes) })
		for _, u := range uses {
			list = append(list, *u)
			for _, name := range u.Nodes {
				have[name] = true
			}
		}
		if rest := namesOf(nodes, func(name string) bool { return !have[name] }); len(rest) > 0 {
			list = append(list, Use{Setting: Setting{Path: path}, Unset: true, Nodes: rest})
		}
	}
	return list, nil
}

func noSetting(key string, nodes []*Explanation) error {
	known := map[string]bool{}
	for _, e := range nodes {
		for _, s := range e.Settings() {
			known[s.Path] = true
			for i := range s.Path {
				if s.Path[i] == '/' {
					known[s.Path[:i]] = true
				}
			}
		}
	}
	hint := cmp.Or(plain.DidYouMean(key, maps.Keys(known)), "as in sysctl/vm.swappiness, files//etc/motd/content or apt/packages/jq")
	return report.Invalidf(hint, "no node of the site has a setting %q", key)
}

// Write prints the values for people.
func (u Uses) Write(w io.Writer) {
	for len(u) > 0 {
		path := u[0].Path
		var c plain.Columns
		for len(u) > 0 && u[0].Path == path {
			s := &u[0].Setting
			if u[0].Unset {
				s = nil
			}
			c.Add(append(s.cells(), plain.Count(len(u[0].Nodes), "node")+": "+plain.Some(u[0].Nodes, 8))...)
			u = u[1:]
		}
		_, _ = io.WriteString(w, report.Printable(path, 128)+"\n") // the verb ends with what its output could not take
		c.Print(w, "  ")
	}
}

// Where returns the nodes that meet a condition, KEY or KEY=VALUE, in their order. Where none has
// the value, others has those that there are.
func Where(condition string, nodes []*Explanation) (names, others []string, err error) {
	key, value, valued := condition, "", false
	found, err := UsesOf(key, nodes)
	if err != nil { // a key may have = in it, so the whole is tried first
		if key, value, valued = strings.Cut(condition, "="); valued {
			found, err = UsesOf(key, nodes)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	met, of := map[string]bool{}, map[string]bool{}
	for _, u := range found {
		if u.Unset || valued && u.Path != key {
			continue
		}
		of[fmt.Sprintf("%.40q", u.Value)] = true
		for _, name := range u.Nodes {
			met[name] = met[name] || !valued || u.Value == value
		}
	}
	if len(of) == 0 {
		return nil, nil, report.Invalidf("name one below it: --key "+key+" lists them", "%q has no value of its own", key)
	}
	names = namesOf(nodes, func(name string) bool { return met[name] })
	if len(names) == 0 {
		others = slices.Sorted(maps.Keys(of))
	}
	return names, others, nil
}

// All returns the nodes that meet every condition, in their order. Where no node has the value of
// one, none says so, with the values that there are.
func All(conditions []string, nodes []*Explanation) (names []string, none string, err error) {
	met := map[string]int{} // how many conditions each node meets
	for _, c := range conditions {
		some, others, err := Where(c, nodes)
		if err != nil {
			return nil, "", err
		}
		if len(some) == 0 && none == "" {
			none = "no node has " + plain.Line(c) + "; there is: " + strings.Join(others, ", ")
		}
		for _, name := range some {
			met[name]++
		}
	}
	return namesOf(nodes, func(name string) bool { return met[name] == len(conditions) }), none, nil
}

// namesOf lists those of nodes that are taken, and is not nil.
func namesOf(nodes []*Explanation, takes func(name string) bool) []string {
	return append([]string{}, plain.Pick(nodes, func(e *Explanation) (string, bool) { return e.Node, takes(e.Node) })...)
}

func same(a, b *Origin) bool { return a == b || a != nil && b != nil && *a == *b }

// Setting is one value of a node: a leaf of an [Explanation].
type Setting struct {
	Path   string  `json:"path"` // KIND/KEY and what is below; an element of a list is named by its name or its text
	Value  string  `json:"value"`
	Origin *Origin `json:"origin,omitempty"` // absent for labels and the kernel's arguments
}

// Settings returns all values of the node, sorted by path: of its configuration, the machine,
// health checks, operations, its labels, and the kernel's arguments.
func (e *Explanation) Settings() []Setting {
	list := slices.Collect(maps.Values(e.settings))
	for k, v := range e.Labels {
		list = append(list, Setting{Path: "labels/" + k, Value: v})
	}
	for _, arg := range e.KernelArgs {
		name, value, _ := strings.Cut(arg, "=")
		list = append(list, Setting{Path: "kernel/" + name, Value: value})
	}
	slices.SortFunc(list, func(a, b Setting) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Value, b.Value))
	})
	return list
}

// Has reports whether the setting is the one at key, or below it.
func (s Setting) Has(key string) bool { return s.Path == key || strings.HasPrefix(s.Path, key+"/") }

func text(v any) string {
	if list, ok := v.([]string); ok {
		return strings.Join(list, " ")
	}
	return fmt.Sprint(v)
}

// Write prints the explanation as a tree: each value with the place it was
// written, and for an overridden one what it replaced.
func (e *Explanation) Write(w io.Writer) {
	labels := plain.Each(slices.Sorted(maps.Keys(e.Labels)), func(k string) string { return k + "=" + report.Printable(e.Labels[k], 60) })
	title := "node " + report.Printable(e.Node, 128)
	if len(labels) > 0 {
		title += " (" + strings.Join(labels, ", ") + ")"
	}
	if !e.Known {
		title += ": not in the site, explained as if it were"
	}
	fmt.Fprintln(w, title)
	if len(e.KernelArgs) > 0 {
		fmt.Fprintf(w, "kernel arguments: %s\n", report.Printable(strings.Join(e.KernelArgs, " "), 400))
	}
	for _, l := range e.lines {
		switch {
		case l.target != "":
			fmt.Fprintf(w, "\n%-52s %s\n", strings.TrimSpace(l.key+" "+l.text), l.target)
		case l.origin == nil:
			fmt.Fprintf(w, "%s%s\n", strings.Repeat("  ", l.depth), keyText(l.key))
		default:
			left := strings.Repeat("  ", l.depth) + keyText(l.key) + " " + report.Printable(l.text, 64)
			fmt.Fprintf(w, "%-52s %s\n", left, l.origin)
		}
	}
	if len(e.Defaults) > 0 {
		fmt.Fprintf(w, "\n%-52s default\n", "not written, but in force")
		for _, k := range slices.Sorted(maps.Keys(e.Defaults)) {
			fmt.Fprintf(w, "  %s: %s\n", strings.TrimPrefix(k, "/conf/"), text(e.Defaults[k]))
		}
	}
}

// String is the place, the override if it was one, and what that replaced.
func (o *Origin) String() string {
	out := "default"
	if o.File != "" {
		out = fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	if o.Source != "base" && o.Source != "default" {
		out += " " + o.Source
		if o.Over != "" {
			out += ", over " + report.Printable(o.Over, 40)
		}
	}
	return out
}

func keyText(key string) string {
	if key == "-" {
		return key
	}
	return report.Printable(key, 64) + ":"
}

// Difference is a setting that two nodes do not share.
type Difference struct {
	Path string   `json:"path"`
	A    *Setting `json:"a,omitempty"` // absent where the node has none
	B    *Setting `json:"b,omitempty"`
}

// Differences are those of two nodes, by path.
type Differences []Difference

// Against returns in what the nodes differ.
func (e *Explanation) Against(other *Explanation) Differences {
	a, b := e.byPath(), other.byPath()
	paths := maps.Clone(a)
	maps.Copy(paths, b)
	list := Differences{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for i := range max(len(a[path]), len(b[path])) {
			d := Difference{Path: path, A: at(a[path], i), B: at(b[path], i)}
			if d.A == nil || d.B == nil || d.A.Value != d.B.Value {
				list = append(list, d)
			}
		}
	}
	return list
}

// byPath returns the settings by their path: a list may have one text twice.
func (e *Explanation) byPath() map[string][]Setting {
	m := map[string][]Setting{}
	for _, s := range e.Settings() {
		m[s.Path] = append(m[s.Path], s)
	}
	return m
}

func at(list []Setting, i int) *Setting {
	if i >= len(list) {
		return nil
	}
	return &list[i]
}

// Write prints differences for people: of each setting what the nodes a and b have.
func (d Differences) Write(w io.Writer, a, b string) {
	for _, one := range d {
		var c plain.Columns
		c.Add(append([]string{a}, one.A.cells()...)...)
		c.Add(append([]string{b}, one.B.cells()...)...)
		_, _ = io.WriteString(w, report.Printable(one.Path, 128)+"\n") // the verb ends with what its output could not take
		c.Print(w, "  ")
	}
}

// cells are a value and the place of its origin.
func (s *Setting) cells() []string {
	if s == nil {
		return []string{"not set", ""}
	}
	origin := ""
	if s.Origin != nil {
		origin = s.Origin.String()
	}
	return []string{report.Printable(s.Value, 64), origin}
}
