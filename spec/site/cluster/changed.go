// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Check reports what the documents of a file could not say as objects: what an object may
// not have, see [Refused], and what kubectl would send as another value, or as one that an
// API server does not take. That is text without quotes which YAML 1.1 reads as a number
// or as yes and no. Of an object it finds what stands where a text belongs and is not one.
//
// Nor can two documents of a file be one object.
func Check(src *report.Source, r *report.Report) { check(tree.Parse(src, src.Data, r), r) }

func check(docs []*tree.Value, r *report.Report) {
	seen := map[string]bool{}
	for _, doc := range docs {
		refusedIn(doc, nil, r)
		if name := doc.Get("metadata").Get("name"); name != nil && doc.Get("kind") != nil {
			if key := doc.Get("kind").Text + " " + name.Text; seen[key] {
				r.Add(report.Problem{At: name.At, Path: "metadata.name", Severity: report.Error, Rule: "duplicate-name",
					Message: "the file has another " + key + ", and a namespace one object of a kind and name",
					Hint:    "give one of them another name"})
			} else {
				seen[key] = true
			}
		}
		if s := schemaOf(doc); s != nil {
			changed(doc, s, nil, r)
		}
	}
}

// schemaOf returns the schema of a document by its kind, nil where it is of none of ours.
func schemaOf(doc *tree.Value) node {
	kind := doc.Get("kind")
	if kind == nil {
		return nil
	}
	return plain.First(kinds(), func(k Kind) bool { return k.Kind == kind.Text }).schema
}

var (
	// What go-yaml makes a number of, or more: quotes never hurt.
	number = regexp.MustCompile(`^[-+]?(0[box]?[0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|` +
		`\.[0-9_]+([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))$|^\.(nan|NaN|NAN)$`)
	canonical = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,17})$`)
)

// changed compares a value with the schema of its place.
func changed(v *tree.Value, s node, path []string, r *report.Report) {
	say := func(hint, message string) {
		r.Add(report.Problem{At: v.At, Path: shape.JoinPath(path), Severity: report.Error, Rule: "quoted", Message: message, Hint: hint})
	}
	if alike, ok := s[forms].([]any); ok {
		for _, form := range alike {
			if form := form.(node); ofKind(v, form) {
				changed(v, form, path, r)
				return
			}
		}
		return // the reader of the site says what belongs there
	}
	switch {
	case v.Kind == tree.Mapping:
		changedFields(v, s, path, r)
	case v.Kind == tree.Sequence:
		if items, ok := s["items"].(node); ok {
			for i, e := range v.List {
				changed(e, items, append(slices.Clone(path), shape.Nth(i)), r)
			}
		}
	case v.Kind != tree.Scalar:
	case s["type"] == "string":
		if _, word := shape.FlagWord(v.Text); v.Plain && (word || number.MatchString(v.Text)) {
			say("quote it: "+strconv.Quote(v.Text), v.Text+" is text here, and a number or yes and no for kubectl")
		}
	case s["type"] == "boolean":
		if on, ok := shape.FlagWord(v.Text); ok && (!v.Plain || len(v.Text) == 1) {
			say("write "+strconv.FormatBool(on)+", without quotes", "an object takes yes and no as true and false")
		}
	case s["x-kubernetes-int-or-string"] == true:
		if v.Plain && !canonical.MatchString(v.Text) {
			say("quote it: "+strconv.Quote(v.Text), v.Text+" would be another number for kubectl")
		}
	}
}

// changedFields compares the keys of a mapping, and what is below them.
func changedFields(v *tree.Value, s node, path []string, r *report.Report) {
	properties, _ := s["properties"].(node)
	each, _ := s["additionalProperties"].(node)
	for _, f := range v.Fields {
		if _, word := shape.FlagWord(f.Key); (word || number.MatchString(f.Key) && !canonical.MatchString(f.Key)) && !isQuoted(f.At) {
			r.Add(report.Problem{At: f.At, Path: shape.JoinPath(path), Severity: report.Error, Rule: "quoted",
				Message: "the key " + f.Key + " is another one for kubectl", Hint: "quote it: " + strconv.Quote(f.Key)})
		}
		below, ok := properties[f.Key].(node)
		if !ok {
			below = each
		}
		if below != nil {
			changed(f.Val, below, append(slices.Clone(path), f.Key), r)
		}
	}
}

// isQuoted reports whether what stands at a place begins with a quote.
func isQuoted(at report.Pos) bool {
	if at.Src.Data == nil {
		return true // of an object, whose keys are texts
	}
	lines := bytes.SplitN(at.Src.Data, []byte("\n"), int(at.Line)+1)
	if len(lines) < int(at.Line) {
		return false
	}
	text := []rune(string(lines[at.Line-1]))
	return int(at.Col) <= len(text) && (text[at.Col-1] == '"' || text[at.Col-1] == '\'')
}

// ofKind reports whether a value may be of a form.
func ofKind(v *tree.Value, form node) bool {
	switch v.Kind {
	case tree.Mapping:
		return form["type"] == "object"
	case tree.Sequence:
		return form["type"] == "array"
	case tree.Scalar:
		return form["type"] == "string"
	}
	return false
}

// Refusal is a field that an object may not have: it reads, writes or runs something
// where the site is published.
type Refusal struct {
	Path string // the end of the field's path; "*" is a key of the author's, or an entry
	Does string // what it would do there
	Hint string // what to do instead
	CEL  string // of the values that are good all the same, as Kubernetes checks it; "" where none is

	pattern string                 // in place of CEL, which counts long texts as costly
	good    func(text string) bool // the same, as Go
	maps    bool                   // what is neither text nor a list of texts is good: definitions take nothing else
}

// Refused are all of them. The CustomResourceDefinitions refuse them with these words, and
// [Reader.Parse] does where an object was stored by a server without the definitions.
var Refused = []Refusal{
	{Path: "include", Does: "reads files", Hint: "apply their documents as objects"},
	{Path: "values", Does: "reads files", Hint: "write them below conf"},
	{Path: "inventory", Does: "reads files", Hint: "write the nodes below nodes, or take those of the cluster: [{cluster: {}}]", maps: true},
	{Path: "registry", Does: "writes into a directory", Hint: "name a registry: host[:port]/prefix", CEL: "!self.startsWith('oci:')",
		good: func(text string) bool { return !strings.HasPrefix(text, "oci:") }},
	{Path: "layer/base/tar", Does: "reads a file", Hint: "name an image: base: {oci: REF@sha256:…}"},
	{Path: "layer/base/debian/keyring", Does: "reads a file", Hint: "leave it out: the suite's own keyring is taken"},
	{Path: "trust/keys", Does: "reads files",
		Hint: "the keys that count are in a directory beside the publisher: keys/operator.pub, and keys/root.pub with caisson.keys"},
	{Path: "secrets/*/file", Does: "reads a file", Hint: "name a Secret of the namespace: secretRef: {name: …, key: …}"},
	{Path: "secrets/*/command", Does: "runs a program", Hint: "name a Secret of the namespace: secretRef: {name: …, key: …}"},
	{Path: "conf/apparmor/profiles/*/file", Does: "reads a file", Hint: "write the profile's text"},
	{Path: "conf/exec/*/file", Does: "reads a file", Hint: "write the script as data"},
	{Path: "conf/exec/*/revert_file", Does: "reads a file", Hint: "write the script as revert"},
	{Path: "conf/files/*/file", Does: "reads a file", Hint: "write the text as content"},
	{Path: "conf/units/*/file", Does: "reads a file", Hint: "write the text as content"},
	{Path: "cas/*", Does: "reads a file", Hint: "write the certificate itself, as PEM", pattern: "-----BEGIN",
		good: func(text string) bool { return strings.Contains(text, "-----BEGIN") }},
	{Path: "git/allowedSigners", Does: "reads a file", Hint: "have the service's own file name whose commits count, where it is locked"},
	{Path: "git/url", Does: "reads a directory", Hint: "name a server: https, ssh or http",
		CEL:  "!self.startsWith('file:') && !self.startsWith('/')",
		good: func(text string) bool { return !strings.HasPrefix(text, "file:") && !strings.HasPrefix(text, "/") }},
}

// String says why the field is refused, of a publisher anywhere.
func (r Refusal) String() string {
	name := r.Path[strings.LastIndex(strings.TrimSuffix(r.Path, "/*"), "/")+1:]
	return strings.TrimSuffix(name, "/*") + " " + r.Does + " where the site is published, and is refused in an object"
}

// matches reports whether a path ends as a pattern says.
func matches(pattern string, path []string) bool {
	want := strings.Split(pattern, "/")
	if len(want) == 1 { // a field of the document itself
		return len(path) == 1 && path[0] == pattern
	}
	if len(path) < len(want) {
		return false
	}
	for i, p := range path[len(path)-len(want):] {
		if want[i] != "*" && strings.TrimPrefix(p, "+") != want[i] {
			return false
		}
	}
	return true
}

// refuse makes the schema of a field refuse what the table says.
func refuse(s node, path []string) {
	for _, r := range Refused {
		at := s
		if r.maps {
			continue
		}
		if below, ok := strings.CutSuffix(r.Path, "/*"); ok && matches("*/"+below, path) { // its entries
			at, _ = s["items"].(node)
		} else if !matches(r.Path, path) {
			continue
		}
		if at == nil {
			continue
		}
		if r.pattern != "" {
			at["pattern"] = r.pattern
			continue
		}
		if each, ok := at[forms].([]any); ok { // a rule has to know the type
			maps.Copy(at, each[len(each)-1].(node))
			delete(at, "x-kubernetes-preserve-unknown-fields")
			delete(at, forms)
		}
		at["x-kubernetes-validations"] = []any{node{"rule": cmp.Or(r.CEL, "false"), "message": r.String() + ": " + r.Hint}}
	}
}

// in returns what of a value of the field is refused.
func (r Refusal) in(v *tree.Value) []*tree.Value {
	switch {
	case v.Kind == tree.Null || v.Kind == tree.Scalar && r.good != nil && r.good(v.Text):
		return nil
	case r.maps && v.Kind == tree.Sequence:
		return slices.DeleteFunc(slices.Clone(v.List), func(e *tree.Value) bool { return e.Kind != tree.Scalar })
	case r.maps && v.Kind != tree.Scalar:
		return nil
	}
	return []*tree.Value{v}
}

// refusedIn reports what a document may not have.
func refusedIn(v *tree.Value, path []string, r *report.Report) {
	for _, one := range Refused {
		if !matches(one.Path, path) {
			continue
		}
		for _, bad := range one.in(v) {
			r.Add(report.Problem{At: bad.At, Path: strings.Join(path, "."), Severity: report.Error, Rule: "refused",
				Message: one.String(), Hint: one.Hint})
		}
	}
	for _, f := range v.Fields {
		refusedIn(f.Val, append(slices.Clone(path), f.Key), r)
	}
	for _, e := range v.List {
		refusedIn(e, append(slices.Clone(path), "*"), r)
	}
}
