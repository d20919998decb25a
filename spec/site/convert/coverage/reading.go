// SPDX-License-Identifier: Apache-2.0

package coverage

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Reading is one file being read.
type Reading struct {
	Name  string
	Data  string
	Link  string // where the file leads
	Items []*Item

	Documents []any // parts of a site beside its conf
	Broken    error // the file cannot be read to its end: none of it counts
}

// Lines calls f for every line that is not blank or a comment.
func (r *Reading) Lines(comments string, f func(n int, line string)) {
	for n, line := range strings.Split(r.Data, "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if line != "" && !strings.ContainsRune(comments, rune(line[0])) {
			f(n+1, line)
		}
	}
}

// Item notes a line.
func (r *Reading) Item(n int, line string) *Item {
	p := &Item{Line: Line{File: r.Name, Line: n, Text: report.Printable(line, 200)}}
	r.Items = append(r.Items, p)
	return p
}

// Miss says why a line is not taken.
func (r *Reading) Miss(n int, line, why string) { r.Item(n, line).Why = why }

// Whole says why no part of a file is taken.
func (r *Reading) Whole(why string) { r.Miss(1, "the whole file", why) }

// Take notes an item's value; same names its setting, by which a later line replaces it.
func (p *Item) Take(module, same string, path []string, value any) *Item {
	p.Taken, p.Module, p.same, p.Path, p.Value = true, module, module+" "+same, path, value
	return p
}

// Stanzas calls f for each group of fields, as deb822(5) has them, with the line where it
// begins. Names of fields are in lower case; the first line is the one without a name.
func (r *Reading) Stanzas(f func(n int, fields map[string]string)) {
	fields, at, last := map[string]string{}, 0, ""
	for n, line := range strings.Split(r.Data+"\n\n", "\n") {
		line = strings.TrimRight(line, " \t\r")
		switch text := strings.TrimSpace(line); {
		case line == "":
			if len(fields) > 0 {
				f(at, fields)
			}
			fields = map[string]string{}
		case line[0] == '#':
		case text != line && len(fields) > 0: // it goes on
			fields[last] = strings.TrimPrefix(fields[last]+"\n"+strings.TrimPrefix(text, "."), "\n")
		default:
			key, value, _ := strings.Cut(line, ":")
			if len(fields) == 0 {
				at, fields[""] = n+1, line
			}
			last = Anew(fields, strings.ToLower(key))
			fields[last] = strings.TrimSpace(value)
		}
	}
}

// Anew returns the name of a field, another one where it was said before.
func Anew(fields map[string]string, name string) string {
	for fields[name] != "" {
		name += ", again"
	}
	return name
}

// Document parses what first-boot tools read; JSON is YAML, too.
func (r *Reading) Document() *tree.Value {
	found := &report.Report{}
	docs := tree.Parse(&report.Source{Name: r.Name}, []byte(r.Data), found)
	if len(docs) > 1 {
		for _, d := range docs[1:] {
			r.Miss(int(d.At.Line), "a further document", "one is read of a file: import each as a file of its own")
		}
	}
	switch {
	case found.Err() != nil:
		p := found.Problems[0]
		if p.Rule == "yaml" {
			p.Hint = cmp.Or(p.Hint, "is the file whole?")
		}
		r.Broken = report.Invalidf(p.Hint, "%s:%d:%d: %s", r.Name, p.Line, p.Column, p.Message)
	case len(docs) == 0 || docs[0].Kind == tree.Null:
		r.Miss(1, "", "it is not a map")
	case docs[0].Kind != tree.Mapping:
		r.Broken = report.Invalidf("is the file whole, and of this kind?", "%s:%d: it is not a map", r.Name, int(docs[0].At.Line))
	default:
		return docs[0]
	}
	return &tree.Value{}
}

// Entries calls f for each entry of the list below key. What is not a list is named.
func (r *Reading) Entries(v *tree.Value, key string, f func(*tree.Value)) {
	list := v.Get(key)
	switch {
	case list == nil || list.Kind == tree.Null:
	case list.Kind != tree.Sequence:
		r.Miss(int(list.At.Line), key, "it is not a list")
	default:
		for _, e := range list.List {
			f(e)
		}
	}
}

// Each calls f for the entries of the map below key. What is not one is named.
func (r *Reading) Each(v *tree.Value, key string, f func(key string, entry *tree.Value)) {
	m := v.Get(key)
	if m != nil && m.Kind != tree.Mapping && m.Kind != tree.Null {
		r.Miss(int(m.At.Line), key, "it is not a map")
	}
	if m != nil {
		for _, e := range m.Fields {
			f(e.Key, e.Val)
		}
	}
}

// Words returns the entries of a list, or of a text with commas between them.
func (r *Reading) Words(v *tree.Value, key string) []string {
	f := v.Get(key)
	if f == nil || f.Kind != tree.Scalar {
		return r.Texts(v, key)
	}
	out := plain.Each(strings.Split(f.Text, ","), strings.TrimSpace)
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// Texts returns the entries of a list, or the one that stands in its place. What is not a
// text is named.
func (r *Reading) Texts(v *tree.Value, key string) (out []string) {
	f := v.Get(key)
	if f == nil || f.Kind == tree.Null {
		return nil
	}
	all := f.List
	if f.Kind != tree.Sequence {
		all = []*tree.Value{f}
	}
	for _, e := range all {
		if e.Kind != tree.Scalar {
			r.Miss(int(e.At.Line), key, "it is not a list of texts")
		} else if e.Text != "" {
			out = append(out, e.Text)
		}
	}
	return out
}

// holding are the keys whose values are maps or lists; those of the others are texts.
var holding = strings.Fields("users packages write_files mounts groups sudo ssh_authorized_keys sshAuthorizedKeys passwd storage " +
	"systemd ignition openshift metadata kernelArguments kernel_arguments shouldExist should_exist contents append user group files " +
	"filesystems units dropins config spec machine sysctls sysfs kernel modules parameters install extraKernelArgs network " +
	"nameservers time servers ethernets bonds vlans match addresses routes search interfaces")

// Rest accounts for the keys of a map that nothing reads, except known ones, and for what
// is not a map.
func (r *Reading) Rest(v *tree.Value, where string, why map[string]string, known ...string) {
	if v.Kind == tree.Scalar || v.Kind == tree.Sequence {
		r.Miss(int(v.At.Line), where, "it is not a map")
	}
	for _, f := range v.Fields {
		if slices.Contains(known, f.Key) {
			if (f.Val.Kind == tree.Mapping || f.Val.Kind == tree.Sequence) && !slices.Contains(holding, f.Key) {
				r.Miss(int(f.At.Line), strings.TrimPrefix(where+"."+f.Key, "."), "it is not a text")
			}
			continue
		}
		r.Miss(int(f.At.Line), strings.TrimPrefix(where+"."+f.Key, "."), cmp.Or(why[f.Key], "it has no counterpart in a site"))
	}
}
