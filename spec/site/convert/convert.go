// SPDX-License-Identifier: Apache-2.0

// Package convert reads what configures a host today, sysctl.d(5),
// limits.conf(5), fstab(5), passwd(5), systemd.link(5), systemd.unit(5), what
// ethtool(8) and dpkg(1) print, and what is given to first-boot tools and other
// configurators, and makes a part of a site of it. What a file is, its content says.
//
// It is loud: every line that says something is in the coverage, taken or not,
// with the reason. What a site would refuse is not taken. Beside [FilesAt] it
// only reads bytes; it knows no host, and does not decide which of a host's files win: files count
// in the order given, a later line wins.
//
// The command line imports it.
package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// File is one file of a host.
type File struct {
	Name string
	Kind string // one of Kinds; "" to tell by the content, else by the name
	Data []byte
	// Found says that nobody named the file: it lay in a directory. Where it cannot
	// be told what it is, it is left out, and the coverage has a line 0 for it.
	Found bool
	Link  string // where it leads, of a link
	Not   string // why it was not read, as Found
}

// Kinds of files.
var Kinds = kindNames()

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

// MaxFile is the largest file that is read.
const MaxFile = 4 << 20

// maxLines bounds what is made of one import.
const maxLines = 100_000

// parsed is one line that may be taken.
type parsed struct {
	Line
	module string
	same   string   // what it sets
	path   []string // below the module: one value is there in the end
	value  any
	of     *parsed // an earlier line whose value this one is a part of
}

// Import reads files in order.
func Import(files []File) (*Result, error) {
	r := &Result{Conf: map[string]any{}, Coverage: []Line{}, Documents: []any{}}
	var items []*parsed
	var unknown error // the first file whose kind is not known
	known := false
	for _, f := range files {
		in := &reading{name: f.Name, data: string(f.Data), link: f.Link}
		k := kindNamed(f.Kind)
		if f.Kind == "" {
			k = kindOf(f)
		}
		switch {
		case f.Not != "":
			in.miss(0, "", f.Not)
			items = append(items, in.items...)
			continue
		case empty(f.Data) && in.hides():
			items = append(items, in.items...)
			continue
		case k != nil:
		case empty(f.Data):
			continue
		case f.Found:
			in.miss(0, "", "unknown kind of content")
			items = append(items, in.items...)
			continue
		default:
			const why = "unknown kind of file"
			hint := "say --as with one of " + strings.Join(Kinds, ", ")
			in.miss(1, "the whole file", why+": "+hint)
			items = append(items, in.items...)
			unknown = cmp.Or(unknown, report.Invalidf(hint, "read %s: %s", f.Name, why))
			continue
		}
		known = true
		if len(f.Data) > MaxFile {
			return nil, fmt.Errorf("read %s: more than %d MiB", f.Name, MaxFile>>20)
		}
		k.read(in)
		if in.broken != nil {
			return nil, in.broken
		}
		r.Documents = append(r.Documents, in.documents...)
		items = append(items, in.items...)
		if len(items) > maxLines {
			return nil, fmt.Errorf("read %s: more than %d lines", f.Name, maxLines)
		}
	}
	if unknown != nil && !known {
		return nil, unknown
	}
	supersede(items)
	for _, p := range items {
		if p.Taken && p.module != "" {
			if why := refused(p); why != "" {
				p.refuse(why)
			}
		}
	}
	if err := refuseTogether(items); err != nil {
		return nil, err
	}
	for _, p := range items {
		if p.Taken && p.module != "" {
			r.set(p, p.value)
		}
		if p.of != nil {
			p.Taken, p.As = p.of.Taken, p.of.As
			if !p.Taken {
				p.Why = p.of.Why
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
func supersede(items []*parsed) {
	last := map[string]*parsed{}
	for _, p := range slices.Backward(items) {
		if !p.Taken || p.module == "" {
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
		if !p.Taken || p.module == "" {
			continue
		}
		name := p.path[len(p.path)-1]
		if name == appended {
			p.As = p.module + "." + strings.Join(p.path[:len(p.path)-1], ".")
			continue
		}
		for i := 2; used[p.module+"."+strings.Join(p.path, ".")]; i++ {
			p.path[len(p.path)-1] = fmt.Sprintf("%s-%d", name, i)
		}
		p.As = p.module + "." + strings.Join(p.path, ".")
		used[p.As] = true
	}
}

// placed is a place in the text that a site is asked about.
var placed = regexp.MustCompile(`,? at x:\d+:\d+`)

func (p *parsed) refuse(why string) {
	p.Taken, p.As, p.Why = false, "", "a site refuses it: "+placed.ReplaceAllString(why, "")
}

// machine is the parsed.module of a value that stands beside conf.
const machine = "machine"

// set gives a value its place.
func (r *Result) set(p *parsed, value any) {
	if p.module != machine {
		set(r.Conf, append([]string{p.module}, p.path...), value)
		return
	}
	if r.Machine == nil {
		r.Machine = map[string]any{}
	}
	set(r.Machine, p.path, value)
}

// ask returns the part of a site as a text, and what a site says of it.
func (r *Result) ask() ([]byte, *report.Report, error) {
	text, err := yamlOf(r.parts())
	if err != nil {
		return nil, nil, err
	}
	if r.Machine != nil {
		text = append([]byte(siteHead), text...)
	}
	_, found := site.Parse(siteText(text), "x")
	return text, found, nil
}

// refused says why a site would not take one value, or "". Interfaces are looked at
// together, by refuseTogether.
func refused(p *parsed) string {
	if p.isInterface() {
		return ""
	}
	one := &Result{Conf: map[string]any{}}
	one.set(p, p.value)
	_, found, err := one.ask()
	if err != nil {
		return err.Error()
	}
	return found.FirstError().Message
}

// refuseTogether leaves out the values that a site refuses beside the others, until it
// takes all that are left.
func refuseTogether(items []*parsed) error {
	for again := true; again; {
		again = false
		r, at := &Result{Conf: map[string]any{}}, &Result{Conf: map[string]any{}}
		var last *parsed
		for _, p := range items {
			if p.Taken && p.module != "" {
				r.set(p, p.value)
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
		lines := map[int]*parsed{}
		place(lines, doc.Content[0], at.parts(), 0)
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
func place(lines map[int]*parsed, n *yaml.Node, v any, line int) {
	switch v := v.(type) {
	case *parsed:
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
	isList := path[len(path)-1] == appended
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

// appended is the last element of a path to a new entry of a list.
const appended = "+"
