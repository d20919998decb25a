// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"

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
	for _, k := range kinds() {
		if k.Kind == kind.Text {
			return k.schema
		}
	}
	return nil
}

var (
	// What go-yaml makes a number of, or more: quotes never hurt.
	number    = regexp.MustCompile(`^[-+]?(0[box]?[0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|\.[0-9_]+([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))$|^\.(nan|NaN|NAN)$`)
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
