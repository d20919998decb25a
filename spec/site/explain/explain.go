// SPDX-License-Identifier: Apache-2.0

// Package explain tells for every value of a node's configuration where it was
// written: in which file and line, by which override, over what; and which values
// hold although nobody wrote them.
//
// It reads the same targets that compiling reads, before they are compiled, so
// that people find their own words in it, spelled as sysctl(8) and ethtool(8)
// spell them. People get a tree, tools the [Explanation] as JSON. It decides
// nothing.
package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Explanation is the effective configuration of one node and where each value
// comes from.
type Explanation struct {
	Node    string            `json:"node"`
	Known   bool              `json:"known"` // the site has such a node
	Labels  map[string]string `json:"labels"`
	Target  map[string]string `json:"target"` // by module: host:NAME, label:KEY, default, or off
	Conf    map[string]any    `json:"conf"`
	Machine map[string]any    `json:"machine,omitempty"`
	Health  []any             `json:"health"`         // the checks that are for this node
	Swap    map[string]any    `json:"swap,omitempty"` // the entry that counts for this node
	// Operations are the settings that operations of type realtime manage, by operation and kind.
	Operations map[string]any `json:"operations,omitempty"`
	// KernelArgs are all that the node's kernel is started with.
	KernelArgs []string `json:"kernelArgs"`
	// Defaults are values in force that nobody wrote, by their place in this document.
	Defaults map[string]any `json:"defaults,omitempty"`
	// Origins tell for each value where it was written, by its place in this
	// document: a JSON pointer (RFC 6901).
	Origins map[string]Origin `json:"origins"`

	lines    []explained
	settings map[string]Setting // of Origins
}

// Origin is where a value was written.
type Origin struct {
	Source string `json:"source"` // base, default, host:NAME, label:KEY or template:NAME
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Over   string `json:"over,omitempty"` // the base's text that it replaced
}

// explained is a line of the tree for people.
type explained struct {
	depth  int
	key    string
	text   string
	origin *Origin
	target string // of a module's own line
}

// Node merges the parts of a site for a node: one of the site's, or one that
// there might be.
func Node(n inventory.Node, known, baked bool, parts []*override.Part) *Explanation {
	e := &Explanation{Node: n.Name, Known: known, Labels: n.Labels, Target: map[string]string{}, Conf: map[string]any{},
		Origins: map[string]Origin{}, Defaults: map[string]any{}, Health: []any{}, KernelArgs: []string{}, settings: map[string]Setting{}}
	for _, p := range parts {
		t := p.Choose(n.Name, n.Label)
		e.Target[p.Name] = t.Name
		v := p.Effective(t, func(*tree.Value) {})
		if v == nil || v.Kind == tree.Mapping && len(v.Fields) == 0 && p.Name == module.Machine {
			continue
		}
		w := &walker{e: e, source: t.Name, module: p.Module}
		e.lines = append(e.lines, explained{key: p.Name, target: t.Name})
		if p.Name == module.Machine {
			w.top = true
			e.Machine, _ = w.walk(v, p.Base, place{pointer: "/machine", named: "machine"}).(map[string]any)
			continue
		}
		e.Conf[p.Name] = w.walk(v, p.Base, place{pointer: "/conf/" + p.Name, named: p.Name})
	}
	e.addDefaults(baked)
	return e
}

// AddHealth adds the checks that are for the node.
func (e *Explanation) AddHealth(checks waves.HealthChecks) {
	if len(checks) == 0 {
		return
	}
	list := &tree.Value{Kind: tree.Sequence, List: plain.Each(checks, func(c waves.HealthCheck) *tree.Value { return c.Written })}
	e.lines = append(e.lines, explained{key: "health", target: "default"})
	w := &walker{e: e, source: "default", module: &module.Module{}, top: true}
	health := place{pointer: "/health", named: "health"}
	e.Health, _ = w.walk(list, list, health).([]any)
	for i, c := range checks {
		for key, v := range map[string]string{"timeout": seconds(c.Timeout), "interval": seconds(c.Interval),
			"retries": strconv.FormatInt(c.Retries, 10)} {
			if c.Written.Get(key) == nil {
				e.byDefault(health.entry(i, c.Written).key(key), v)
			}
		}
	}
}

// AddSwap adds when the node starts over by itself, as it is written.
func (e *Explanation) AddSwap(written *tree.Value) {
	e.lines = append(e.lines, explained{key: "swap", target: "default"})
	w := &walker{e: e, source: "default", module: &module.Module{}, top: true}
	e.Swap, _ = w.walk(written, written, place{pointer: "/swap", named: "swap"}).(map[string]any)
}

// AddOperation adds what an operation of type realtime manages on the node, in windows
// where it names any, with a budget where it has one of its own. Conf has the settings by kind, from is the template that they were
// made of.
func (e *Explanation) AddOperation(name, from string, windows []string, budget *spec.Budget, conf *tree.Value) {
	if e.Operations == nil {
		e.Operations = map[string]any{}
	}
	when := "realtime"
	if len(windows) > 0 {
		when += ", in " + strings.Join(windows, " or ")
	}
	if budget != nil {
		when += ", given up after " + budget.String()
	}
	e.lines = append(e.lines, explained{key: "operation " + name, target: when})
	source := "default"
	if template, _, ok := strings.Cut(from, "@"); ok {
		source = "template:" + template
	}
	kinds := map[string]any{}
	e.Operations[name] = kinds
	for _, m := range module.Conf() {
		if v := conf.Get(m.Name); v != nil {
			w := &walker{e: e, source: source, module: m}
			e.lines = append(e.lines, explained{depth: 1, key: m.Name})
			at := place{pointer: "/operations", named: "operations"}.key(name).key(m.Name)
			at.path = nil
			kinds[m.Name] = w.walk(v, nil, at)
		}
	}
}

func seconds(n int64) string { return strconv.FormatInt(n, 10) + "s" }

// addDefaults tells what holds although it was not written. Baked says that the
// site has a layer.
func (e *Explanation) addDefaults(baked bool) {
	for _, m := range module.Conf() {
		if m.Defaults == nil || e.Target[m.Name] == "off" {
			continue
		}
		conf, _ := e.Conf[m.Name].(map[string]any)
		for path, v := range m.Defaults(conf, baked) {
			at := place{pointer: "/conf/" + m.Name, named: m.Name}
			for part := range strings.SplitSeq(path, "\x00") {
				at = at.key(part)
			}
			e.byDefault(at, v)
		}
	}
}

func (e *Explanation) byDefault(at place, v any) {
	o := Origin{Source: "default"}
	e.Defaults[at.pointer], e.Origins[at.pointer], e.settings[at.pointer] = v, o, Setting{at.named, text(v), &o}
}

// place is where a value stands.
type place struct {
	pointer string   // in the document
	named   string   // as people read it
	path    []string // below its module; a list's entry is "*"
}

// key returns the place of a value below a map.
func (p place) key(key string) place {
	return place{p.pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key), p.named + "/" + key, append(p.path, key)}
}

// entry returns the place of an entry of a list. It is named by its name, which entries of packages,
// users and checks have, or by its text, so that one that was put before it changes nothing else.
func (p place) entry(i int, v *tree.Value) place {
	name := strconv.Itoa(i)
	for _, own := range []*tree.Value{v.Get("type"), v.Get("name"), v} {
		if own != nil && own.Kind == tree.Scalar {
			name = own.Text
		}
	}
	return place{fmt.Sprintf("%s/%d", p.pointer, i), p.named + "/" + name, append(p.path, "*")}
}

// walker turns an effective value into plain data and notes the origins.
type walker struct {
	e      *Explanation
	source string
	module *module.Module
	top    bool // it explains a key of the document itself, not one of conf
}

// walk returns v as plain data. Base is the value at the same place without
// the override; a value that is the very same came from there.
func (w *walker) walk(v, base *tree.Value, at place) any {
	depth := strings.Count(at.pointer, "/") - 1
	if w.top {
		depth++
	}
	switch v.Kind {
	case tree.Mapping:
		out := make(map[string]any, len(v.Fields))
		fields := slices.Clone(v.Fields)
		slices.SortStableFunc(fields, func(a, b tree.Field) int { return strings.Compare(a.Key, b.Key) })
		for _, f := range fields {
			w.e.lines = append(w.e.lines, explained{depth: depth, key: f.Key}) // a container's is complete with its key
			out[f.Key] = w.walk(f.Val, base.Get(f.Key), at.key(f.Key))
		}
		if len(fields) == 0 {
			w.leaf(v, base, at, "{}", "{}")
		}
		return out
	case tree.Sequence:
		out := make([]any, len(v.List))
		for i, el := range v.List {
			var b *tree.Value
			if v == base || base != nil && i < len(base.List) && base.List[i] == el { // the rest was appended
				b = el
			}
			w.e.lines = append(w.e.lines, explained{depth: depth, key: "-"})
			out[i] = w.walk(el, b, at.entry(i, el))
		}
		if len(v.List) == 0 {
			w.leaf(v, base, at, "[]", "[]")
		}
		return out
	case tree.Null:
		w.leaf(v, base, at, "null", "")
		return nil
	}
	if on, ok := shape.FlagWord(v.Text); ok && w.module.Flag != nil && w.module.Flag(at.path) {
		w.leaf(v, base, at, v.Text, strconv.FormatBool(on))
		return on
	}
	w.leaf(v, base, at, v.Text, v.Text)
	return v.Text
}

// leaf notes where a value comes from, as a text of the tree and of settings.
func (w *walker) leaf(v, base *tree.Value, at place, text, value string) {
	o := Origin{Source: "base"}
	if v != base {
		o.Source = w.source
		if base != nil && base.Kind == tree.Scalar {
			o.Over = base.Text
		}
	}
	if w.source == "default" {
		o.Source = "base"
	}
	if v.At.Src != nil {
		o.File, o.Line, o.Column = v.At.Src.Name, int(v.At.Line), int(v.At.Col)
	}
	w.e.Origins[at.pointer], w.e.settings[at.pointer] = o, Setting{at.named, value, &o}
	last := &w.e.lines[len(w.e.lines)-1]
	last.text, last.origin = text, &o
}

// WriteOperations prints for people what a node does once or by a clock.
func WriteOperations(w io.Writer, m spec.Maintenance) {
	line := func(format string, args ...any) {
		_, _ = io.WriteString(w, plain.Sprintf(format+"\n", args...)) // as cli.Printf prints
	}
	within := func(from string, windows []string) {
		if from != "" {
			line("  from %s", from)
		}
		line("  in %s", cmp.Or(strings.Join(windows, " or "), "no window: at any time"))
	}
	for _, o := range m.Operations {
		line("%s  %s\n  %s", o.Name, o.Type, strings.Join(o.Exec.Argv, " "))
		within(o.From, o.Windows)
		for _, at := range o.Runs {
			line("  %s", at.Format(time.RFC3339))
		}
	}
	for _, r := range m.Realtime {
		line("%s  %s", r.Name, spec.RealtimeType)
		for _, k := range r.Keys {
			line("  %s %s", k.Item, rules.PolicyName(k.Item, k.Key))
		}
		within(r.From, r.Windows)
	}
}
