// SPDX-License-Identifier: Apache-2.0

// Package shape describes what a document looks like, once: as a Go struct with tags, or as a
// table of [Field] where the keys come from one. [Checker.Decode] fills it from a tree, strictly,
// and reports what does not fit with its place; [Schema] makes the JSON Schema of the same struct,
// so that editors and the parser cannot disagree about a key.
//
// A field is tagged site:"name" or site:"name,required"; enum and doc tags tell what may stand
// there and why. Scalars are [Text], [Flag], [Number] and [Words]; [Map] keeps the author's keys
// in order; [Raw] is decoded later. Types of package spec are decoded into as they are: a string,
// a bool, an integer or a list of texts is read as one of these, or by a form, as in
// site:",duration", and [Checker.At] has the places. Rules for values are those of package
// spec/rules, which [Checker.Valid] reports; rules for more than one field stand beside the types
// that have them. Only packages below spec/site import it.
package shape

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Checker decodes values into the authored types and collects what is wrong.
// The path of fields it stands in is for people who read the report.
type Checker struct {
	Report *report.Report
	Path   []string

	as    string       // an example of the field that is decoded
	unset []report.Pos // of values that could not be read
}

// Nth is the name of a list's entry in a path.
func Nth(i int) string { return "[" + strconv.Itoa(i) + "]" }

// Push enters a field.
func (c *Checker) Push(name string) { c.Path = append(c.Path, name) }

// Pop leaves the last field that was entered.
func (c *Checker) Pop() { c.Path = c.Path[:len(c.Path)-1] }

// In does f inside a field.
func (c *Checker) In(name string, f func()) { c.Within([]string{name}, f) }

func (c *Checker) problem(p report.Problem) {
	p.Path = JoinPath(c.Path)
	if p.At.Src == nil && c.Report.Count(report.Error) > 0 || p.Severity != report.Error && c.unread(p.Path) {
		return // it is about nothing that the author wrote, but about what is wrong or missing there
	}
	c.Report.Add(p)
}

// unread reports whether the value at a path is of another kind than it should be: nothing
// else can be said of it.
func (c *Checker) unread(path string) bool {
	return slices.ContainsFunc(c.Report.Problems, func(p report.Problem) bool {
		return p.Path == path && p.Rule == "type" && p.Severity == report.Error
	})
}

// Errorf reports what makes the input unusable.
func (c *Checker) Errorf(at report.Pos, rule, hint, format string, args ...any) {
	c.problem(report.Problem{Severity: report.Error, At: at, Rule: rule, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Refuse is Errorf where something is wrong.
func (c *Checker) Refuse(wrong bool, at report.Pos, rule, hint, format string, args ...any) {
	if wrong {
		c.Errorf(at, rule, hint, format, args...)
	}
}

// Warnf reports what is probably not what was meant.
func (c *Checker) Warnf(at report.Pos, rule, hint, format string, args ...any) {
	c.problem(report.Problem{Severity: report.Warning, At: at, Rule: rule, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Notef reports what is worth knowing.
func (c *Checker) Notef(at report.Pos, rule, hint, format string, args ...any) {
	c.problem(report.Problem{Severity: report.Note, At: at, Rule: rule, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Within does f inside fields of fields.
func (c *Checker) Within(names []string, f func()) {
	n := len(c.Path)
	c.Path = append(c.Path, names...)
	f()
	c.Path = c.Path[:n]
}

// Each does f inside each entry of the list in a field.
func Each[T any](c *Checker, field string, list []T, f func(i int, one T)) {
	for i, one := range list {
		c.Within([]string{field, Nth(i)}, func() { f(i, one) })
	}
}

// JoinPath writes conf.sysctl["vm.swappiness"], users[2].
func JoinPath(path []string) string {
	var b strings.Builder
	for i, p := range path {
		switch {
		case strings.HasPrefix(p, "["):
			b.WriteString(p)
		case strings.ContainsAny(p, ". []\"/"):
			fmt.Fprintf(&b, "[%q]", p)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(p)
		}
	}
	return b.String()
}

// Rename returns a map with its keys in another spelling.
func (c *Checker) Rename(v *tree.Value, to func(string) string) *tree.Value {
	if v.Kind != tree.Mapping {
		return v
	}
	out := *v
	out.Fields = make([]tree.Field, 0, len(v.Fields))
	first := make(map[string]tree.Field, len(v.Fields))
	for _, f := range v.Fields {
		key := to(f.Key)
		if old, dup := first[key]; dup {
			c.Errorf(f.At, "duplicate-key", "keep one of the two", "%q is the same as %q at %s", f.Key, old.Key, old.At)
			continue
		}
		first[key] = f
		out.Fields = append(out.Fields, tree.Field{Key: key, At: f.At, Val: f.Val})
	}
	return &out
}

// Below returns a map with what to makes of the value of a key, where it has that.
func (c *Checker) Below(v *tree.Value, key string, to func(*tree.Value) *tree.Value) *tree.Value {
	val := v.Get(key)
	if val == nil {
		return v
	}
	c.In(key, func() { val = to(val) })
	return v.With(key, val)
}

// Valid reports what a rule of package rules says about the value at at, and
// returns whether it says nothing.
func (c *Checker) Valid(at report.Pos, err error) bool { return c.ValidFields(at, nil, err) }

// ValidFields is [Checker.Valid] for a value of several fields. Places holds where
// each was written, by its name in package spec; a field without a place is
// reported at at. A place that has an error already gets no second one.
func (c *Checker) ValidFields(at report.Pos, places map[string]report.Pos, err error) bool {
	for _, e := range rules.All(err) {
		where := cmp.Or(places[e.Field], at)
		if c.Failed(where) {
			continue
		}
		hint := e.Hint
		if e.Words != nil {
			hint = report.DidYouMean(e.Value, e.Words)
		}
		c.Errorf(where, e.Rule, hint, "%s", e.Message)
	}
	return err == nil
}

// Failed reports whether the value at at has an error already.
func (c *Checker) Failed(at report.Pos) bool {
	return slices.ContainsFunc(c.Report.Problems, func(p report.Problem) bool { return p.At == at && p.Severity == report.Error })
}

// Budget returns how often a setting is set again before it is quarantined; nil where v does not say all of it.
func (c *Checker) Budget(v *tree.Value, b *spec.Budget) *spec.Budget {
	if b == nil || !c.Has(v, "corrections") || !c.Has(v, "per") {
		return nil
	}
	c.In("onConflict", func() {
		if !c.ValidIn(v.At, v, rules.Budget(*b)) {
			b = nil
		}
	})
	return b
}
