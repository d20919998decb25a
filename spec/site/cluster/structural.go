// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/module"
)

// node is a part of a schema: of a JSON Schema, or of a structural one as a
// CustomResourceDefinition has it.
type node = map[string]any

// scalars are the scalar types of package shape, by their names in the JSON Schema, as JSON
// keeps their meaning. A text is a string alone: of 0640 kubectl makes 416.
var scalars = map[string]node{
	"text":   {"type": "string"},
	"flag":   {"type": "boolean"},
	"number": {"x-kubernetes-int-or-string": true},
	"words": {"x-kubernetes-preserve-unknown-fields": true,
		forms: []any{node{"type": "string"}, node{"type": "array", "items": node{"type": "string"}, "maxItems": MaxItems}}},
}

// MaxItems is how many entries a list has at most where nothing else is said of it.
const MaxItems = 16 << 10

// forms is the key in our schemas for a value of several forms, one of a kind:
// no structural schema can say it, so [Definitions] leaves it out.
const forms = "forms"

// documentSchema returns the structural schema of a document.
func documentSchema(name string) (node, error) {
	text, err := document.Schema(name)
	if err != nil {
		return nil, err
	}
	return structural(text)
}

// structural makes a structural schema of a JSON Schema.
func structural(text []byte) (node, error) {
	var s node
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	w := inliner{defs: s["$defs"]}
	for s["else"] != nil { // those of other kinds, which may stand in the same file
		s = s["else"].(node)
	}
	return w.of(s, nil)
}

// inliner makes a structural schema: nothing in it refers to anything else, and every value
// has one type.
type inliner struct {
	defs  any
	open  []string // definitions that are being written out
	brief bool     // without descriptions: below an override, which repeats what was described
}

// of returns a part of the schema, at a path below the document.
func (w *inliner) of(schema node, path []string) (node, error) {
	if ref, ok := schema["$ref"].(string); ok {
		return w.reference(strings.TrimPrefix(ref, "#/$defs/"), schema, path)
	}
	if list, ok := schema["anyOf"].([]any); ok {
		return w.alternatives(list, schema, path)
	}
	out := node{}
	w.describe(out, schema)
	switch enum, t := schema["enum"], schema["type"]; {
	case enum != nil:
		out["type"], out["enum"] = "string", enum
	case t == "object":
		return out, w.object(out, schema, path)
	case t == "array":
		items, err := w.of(schema["items"].(node), append(path, "*"))
		out["type"], out["items"], out["maxItems"] = "array", items, MaxItems
		if last := path[len(path)-1]; last == "opens" || last == "except" {
			out["maxItems"] = calendar.MaxRules
		}
		return out, err
	case t == "string" || t == "integer" || t == "boolean":
		out["type"] = t
		if p := schema["pattern"]; p != nil {
			out["pattern"] = p
		}
	case len(schema) == 0:
		out["x-kubernetes-preserve-unknown-fields"] = true
	default:
		return nil, fmt.Errorf("%s: no structural schema for %v", strings.Join(path, "."), schema)
	}
	return out, nil
}

// reference writes out a definition in the place that names it.
func (w *inliner) reference(name string, at node, path []string) (node, error) {
	out := maps.Clone(scalars[name])
	if out == nil {
		def, ok := w.defs.(node)[name].(node)
		if !ok || slices.Contains(w.open, name) {
			return nil, fmt.Errorf("%s: %s is not there, or contains itself", strings.Join(path, "."), name)
		}
		if name == "modules" { // conf of an override: what its own module reads, see package override
			def = only(def, stanzaOf(path))
		}
		w.open = append(w.open, name)
		defer func() { w.open = w.open[:len(w.open)-1] }()
		var err error
		if out, err = w.of(def, path); err != nil {
			return nil, err
		}
	}
	w.describe(out, at)
	return out, nil
}

// alternatives writes a value that may be null, or of one of several forms. Those a
// structural schema cannot tell apart: the reader of the site does.
func (w *inliner) alternatives(list []any, at node, path []string) (node, error) {
	var each []any
	nullable := false
	for _, a := range list {
		if a.(node)["type"] == "null" {
			nullable = true
			continue
		}
		form, err := w.of(a.(node), path)
		if err != nil {
			return nil, err
		}
		each = append(each, form)
	}
	out := node{"x-kubernetes-preserve-unknown-fields": true, forms: each}
	switch {
	case len(each) == 1:
		out = each[0].(node)
	case matches("conf/apparmor/profiles/*", path): // its text; a file is refused in an object
		out = node{"type": "string"}
	case len(path) > 0 && path[0] == "inventory": // a list of maps; a text is the name of a file
		out = each[len(each)-1].(node)
	}
	if nullable {
		out["nullable"] = true
	}
	w.describe(out, at)
	return out, nil
}

// object writes a map with known keys, or one with the author's.
func (w *inliner) object(out, schema node, path []string) error {
	out["type"] = "object"
	if each, ok := schema["additionalProperties"].(node); ok {
		s, err := w.of(each, append(path, "*"))
		out["additionalProperties"] = s
		return err
	}
	if path = slices.Clone(path); slices.Contains(path, "overrides") && !w.brief {
		w.brief = true
		defer func() { w.brief = false }()
	}
	properties := node{}
	given, _ := schema["properties"].(node)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		s, err := w.of(given[name].(node), append(path, name))
		if err != nil {
			return err
		}
		refuse(s, append(path, name))
		properties[name] = s
	}
	out["properties"] = properties
	if required := schema["required"]; required != nil {
		out["required"] = required
	}
	return nil
}

func (w *inliner) describe(out, from node) {
	if d := from["description"]; d != nil && !w.brief {
		out["description"] = d
	}
}

// stanzaOf returns the module whose override a path is in.
func stanzaOf(path []string) string {
	for _, m := range module.Conf() {
		if slices.Contains(path, m.Stanza()) {
			return m.Name
		}
	}
	return ""
}

// only returns the schema of conf with what overrides of one module may have in it.
func only(conf node, name string) node {
	kept := node{}
	for key, s := range conf["properties"].(node) {
		of := strings.TrimPrefix(key, "+")
		if of == "perms" { // an older word
			of = "perm"
		}
		if of == name || !slices.Contains(module.Names(), of) {
			kept[key] = s
		}
	}
	return node{"type": "object", "properties": kept}
}
