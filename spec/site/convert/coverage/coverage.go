// SPDX-License-Identifier: Apache-2.0

// Package coverage accounts for each line of files that others configure a host by, taken or not,
// with the reason, and makes a part of a site of what was taken. What a site would refuse is not
// taken.
//
// It knows the forms that such files have, lines, stanzas and documents of YAML, and not what any of
// them means: spec/site/convert does, which imports it; the command line prints its results.
package coverage

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Line describes the outcome of a line.
type Line struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Text  string `json:"text"`
	Taken bool   `json:"taken"`
	As    string `json:"as,omitempty"`  // the field it became, as in sysctl.vm.swappiness
	Why   string `json:"why,omitempty"` // why it was not taken, or not all of it
}

// Result is the part of a site, and what it covers.
type Result struct {
	Conf      map[string]any `json:"conf"`
	Machine   map[string]any `json:"machine,omitempty"` // kernel arguments and the network, which stand beside conf
	Documents []any          `json:"documents"`         // parts of a site beside its conf, such as Services
	Coverage  []Line         `json:"coverage"`
}

// Item is one line that may be taken.
type Item struct {
	Line
	Module string
	same   string   // what it sets
	Path   []string // below the module: one value is there in the end
	Value  any
	Of     *Item // an earlier line whose value this one is a part of
}

// Collect makes a part of a site of the lines of all files, in their order.
func Collect(items []*Item, documents []any) (*Result, error) {
	r := &Result{Conf: map[string]any{}, Coverage: []Line{}, Documents: documents}
	supersede(items)
	for _, p := range items {
		if p.Taken && p.Module != "" {
			if why := refused(p); why != "" {
				p.refuse(why)
			}
		}
	}
	if err := refuseTogether(items); err != nil {
		return nil, err
	}
	for _, p := range items {
		if p.Taken && p.Module != "" {
			r.set(p, p.Value)
		}
		if p.Of != nil {
			p.Taken, p.As = p.Of.Taken, p.Of.As
			if !p.Taken {
				p.Why = p.Of.Why
			}
		}
		r.Coverage = append(r.Coverage, p.Line)
	}
	return r, nil
}

// Missed counts the lines that were not taken, or not in full.
func (r *Result) Missed() (n int) {
	for _, l := range r.Coverage {
		if l.Why != "" {
			n++
		}
	}
	return n
}

// Tell says what was not taken, and why; detail is for files of which nobody asked.
func (r *Result) Tell(say, detail func(format string, args ...any)) {
	unknown := 0
	for _, l := range r.Coverage {
		switch {
		case l.Why != "" && l.Line > 0:
			say("%s:%d: %s: %s", l.File, l.Line, l.Text, l.Why)
		case l.Why != "":
			unknown++
			detail("%s: %s", l.File, l.Why)
		}
	}
	if unknown > 0 {
		say("%s left out; -v lists them", plain.Count(unknown, "file"))
	}
	say("%s, %d taken as they are", plain.Count(len(r.Coverage), "line"), len(r.Coverage)-r.Missed())
}

// supersede gives a value to the last line that sets it, and each value a name
// of its own.
func supersede(items []*Item) {
	last := map[string]*Item{}
	for _, p := range slices.Backward(items) {
		if !p.Taken || p.Module == "" {
			continue
		}
		if by := last[p.same]; by != nil {
			p.Why = fmt.Sprintf("%s:%d sets it again", by.File, by.Line.Line)
			if p.isInterface() { // which tools merge, each by rules of its own
				const why = "write an interface in one file: %s:%d is of this interface, too"
				by.Taken, by.Why = false, fmt.Sprintf(why, p.File, p.Line.Line)
				p.Why = fmt.Sprintf(why, by.File, by.Line.Line)
			}
			p.Taken = false
			continue
		}
		last[p.same] = p
	}
	used := map[string]bool{}
	for _, p := range items {
		if !p.Taken || p.Module == "" {
			continue
		}
		name := p.Path[len(p.Path)-1]
		if name == Appended {
			p.As = p.Module + "." + strings.Join(p.Path[:len(p.Path)-1], ".")
			continue
		}
		for i := 2; used[p.Module+"."+strings.Join(p.Path, ".")]; i++ {
			p.Path[len(p.Path)-1] = fmt.Sprintf("%s-%d", name, i)
		}
		p.As = p.Module + "." + strings.Join(p.Path, ".")
		used[p.As] = true
	}
}

// placed is a place in the text that a site is asked about.
var placed = regexp.MustCompile(`,? at x:\d+:\d+`)

func (p *Item) refuse(why string) {
	p.Taken, p.As, p.Why = false, "", "a site refuses it: "+placed.ReplaceAllString(why, "")
}

// Machine is the [Item.Module] of a value that stands beside conf.
const Machine = "machine"

// set gives a value its place.
func (r *Result) set(p *Item, value any) {
	if p.Module != Machine {
		set(r.Conf, append([]string{p.Module}, p.Path...), value)
		return
	}
	if r.Machine == nil {
		r.Machine = map[string]any{}
	}
	set(r.Machine, p.Path, value)
}

// ask returns the part of a site as a text, and what a site says of it.
func (r *Result) ask() ([]byte, *report.Report, error) {
	text, err := YAML(r.Parts())
	if err != nil {
		return nil, nil, err
	}
	if r.Machine != nil {
		text = append([]byte(SiteHead), text...)
	}
	_, found := site.Parse(siteText(text), "x")
	return text, found, nil
}

// refused says why a site would not take one value, or "". Interfaces are looked at
// together, by refuseTogether.
func refused(p *Item) string {
	if p.isInterface() {
		return ""
	}
	one := &Result{Conf: map[string]any{}}
	one.set(p, p.Value)
	_, found, err := one.ask()
	if err != nil {
		return err.Error()
	}
	return found.FirstError().Message
}

// refuseTogether leaves out the values that a site refuses beside the others, until it
// takes all that are left.
func refuseTogether(items []*Item) error {
	for again := true; again; {
		again = false
		r, at := &Result{Conf: map[string]any{}}, &Result{Conf: map[string]any{}}
		var last *Item
		for _, p := range items {
			if p.Taken && p.Module != "" {
				r.set(p, p.Value)
				at.set(p, p)
				last = p
			}
		}
		if last == nil {
			return nil
		}
		text, found, err := r.ask()
		if err != nil || found.Err() == nil {
			return err
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return err
		}
		lines := map[int]*Item{}
		place(lines, doc.Content[0], at.Parts(), 0)
		for _, problem := range found.Problems {
			if problem.Severity == report.Error {
				n := problem.Line
				for n > 0 && lines[n] == nil {
					n--
				}
				cmp.Or(lines[n], last).refuse(problem.Message)
				again = true
			}
		}
	}
	return nil
}

// place notes on which line each value of a document begins.
func place(lines map[int]*Item, n *yaml.Node, v any, line int) {
	switch v := v.(type) {
	case *Item:
		lines[line] = v
	case map[string]any:
		for i := 0; i < len(n.Content); i += 2 {
			place(lines, n.Content[i+1], v[n.Content[i].Value], n.Content[i].Line)
		}
	case []any:
		for i, e := range v {
			place(lines, n.Content[i], e, n.Content[i].Line)
		}
	}
}

func set(in map[string]any, path []string, value any) {
	isList := path[len(path)-1] == Appended
	if isList {
		path = path[:len(path)-1]
	}
	last := path[len(path)-1]
	for _, key := range path[:len(path)-1] {
		next, ok := in[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[key] = next
		}
		in = next
	}
	if isList {
		entries, _ := in[last].([]any)
		value = append(entries, value)
	}
	in[last] = value
}

// Appended is the last element of a path to a new entry of a list.
const Appended = "+"

func (p *Item) isInterface() bool {
	return p.Taken && p.Module == Machine && len(p.Path) > 1 && p.Path[1] == "interfaces"
}

// SiteHead makes a part of a site one that can be looked at.
const SiteHead = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nregistry: oci:x\nnodes: [{name: x}]\n" +
	"layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\n"

// siteText is a file system with one file, whatever name is asked for: the form in
// which a site reads its input.
type siteText string

// Open implements fs.FS.
func (t siteText) Open(name string) (fs.File, error) {
	return &openText{name: name, size: int64(len(t)), Reader: strings.NewReader(string(t))}, nil
}

// openText is the open file and its own description.
type openText struct {
	name string
	size int64
	io.Reader
}

func (f *openText) Stat() (fs.FileInfo, error) { return f, nil }
func (f *openText) Close() error               { return nil }
func (f *openText) Name() string               { return f.name }
func (f *openText) Size() int64                { return f.size }
func (f *openText) Mode() fs.FileMode          { return 0o444 }
func (f *openText) ModTime() time.Time         { return time.Time{} }
func (f *openText) IsDir() bool                { return false }
func (f *openText) Sys() any                   { return nil }

// YAML writes plain data as YAML in which every value is quoted text, or a block of
// lines, so that no reader makes a number or a boolean of it.
func YAML(v any) ([]byte, error) { return tree.Encode(nodeOf(v)) }

func nodeOf(v any) *yaml.Node {
	if m, ok := v.(map[string]any); ok {
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			key := &yaml.Node{}
			key.SetString(k)
			n.Content = append(n.Content, key, nodeOf(m[k]))
		}
		return n
	}
	if l, ok := v.([]any); ok {
		return &yaml.Node{Kind: yaml.SequenceNode, Content: plain.Each(l, nodeOf)}
	}
	if b, ok := v.(bool); ok {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(b)}
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: fmt.Sprint(v), Style: yaml.SingleQuotedStyle}
	if strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	return n
}

// WriteYAML prints the part of a site, and documents of other kinds after it. Values that
// stand beside conf make it a Site, for a Site to include.
func (r *Result) WriteYAML(w io.Writer) error {
	if len(r.Conf)+len(r.Machine) > 0 || len(r.Documents) == 0 {
		text, err := YAML(r.Parts())
		if err != nil {
			return err
		}
		schema, head := "values", ""
		if len(r.Machine) > 0 {
			schema, head = "site", "apiVersion: caisson.dev/v1alpha1\nkind: Site\n"
		}
		if _, err := fmt.Fprintf(w, "# yaml-language-server: $schema=.schema/%s.schema.json\n%s%s", schema, head, text); err != nil {
			return err
		}
		if len(r.Documents) == 0 {
			return nil
		}
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	text, err := documentsText(r.Documents)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Parts are those of a site that have a value, conf in any case where no other has.
func (r *Result) Parts() map[string]any {
	out := map[string]any{}
	if len(r.Conf) > 0 || len(r.Machine) == 0 {
		out["conf"] = r.Conf
	}
	if len(r.Machine) > 0 {
		out[Machine] = r.Machine
	}
	return out
}

// documentsText writes several documents as one file.
func documentsText(docs []any) ([]byte, error) {
	var parts [][]byte
	for _, d := range docs {
		text, err := YAML(d)
		if err != nil {
			return nil, err
		}
		parts = append(parts, text)
	}
	return bytes.Join(parts, []byte("---\n")), nil
}

// RefusedDocuments says why a site would not take some documents, or "".
func RefusedDocuments(docs []any) string {
	text, err := documentsText(docs)
	if err != nil {
		return err.Error()
	}
	_, found := site.Parse(alone{siteText(text)}, "x")
	if p := found.FirstError(); p.Message != "" {
		return "a site refuses it: " + p.Message
	}
	return ""
}

// alone is the one file x, and no other beside it.
type alone struct{ siteText }

// Open implements fs.FS.
func (a alone) Open(name string) (fs.File, error) {
	if name != "x" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return a.siteText.Open(name)
}
