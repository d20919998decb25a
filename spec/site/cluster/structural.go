// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/tree"
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

// Definitions returns the CustomResourceDefinitions of all kinds, a YAML document each.
func Definitions() ([]byte, error) {
	var b bytes.Buffer
	for _, k := range Kinds() {
		text, err := k.Definition()
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

// Definition returns the CustomResourceDefinition of a kind.
func (k Kind) Definition() ([]byte, error) {
	version := node{"name": Version, "served": true, "storage": true,
		"schema": node{"openAPIV3Schema": k.openAPI()}, "additionalPrinterColumns": k.printed()}
	if k.Kind != FleetNode { // nothing but what was seen: a writer of one writes its status
		version["subresources"] = node{"status": node{}}
	}
	return tree.Encode(node{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": node{"name": k.Plural + "." + Group},
		"spec": node{"group": Group, "scope": "Namespaced",
			"names": node{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural,
				"singular": strings.ToLower(k.Kind), "categories": []string{"caisson"}},
			"versions": []any{version}}})
}

// openAPI returns the schema of a whole object.
func (k Kind) openAPI() node {
	out := generic(k.schema).(node)
	out["description"] = k.about
	properties := out["properties"].(node)
	properties["apiVersion"], properties["kind"], properties["metadata"] = node{"type": "string"},
		node{"type": "string"}, node{"type": "object"}
	if k.Doc || k.Kind == PublishApproval {
		properties["status"] = k.status()
	}
	required, _ := out["required"].([]any)
	kept := slices.DeleteFunc(slices.Clone(required), func(name any) bool { // every object has them
		return name == "apiVersion" || name == "kind" || name == "metadata"
	})
	delete(out, "required")
	if len(kept) > 0 {
		out["required"] = kept
	}
	for path, value := range k.defaults {
		at := out
		for name := range strings.SplitSeq(path, ".") {
			at = at["properties"].(node)[name].(node)
		}
		at["default"] = value
	}
	return out
}

// generic returns a copy of a schema without what only this package reads.
func generic(v any) any {
	switch v := v.(type) {
	case node:
		out := node{}
		for key, e := range v {
			if _, list := e.([]any); key != forms || !list {
				out[key] = generic(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = generic(e)
		}
		return out
	}
	return v
}

func (k Kind) printed() []any {
	return append(plain.Each(k.columns, func(c column) any { return node{"name": c.name, "type": c.kind, "jsonPath": c.path} }),
		plain.Each(k.wide, func(c column) any { return node{"name": c.name, "type": c.kind, "jsonPath": c.path, "priority": 1} })...)
}

// status returns the schema of an object's status by caisson-kube: conditions as in other kinds of
// Kubernetes, and of a Site what is published.
func (k Kind) status() node {
	text := func(about string) node { return node{"type": "string", "description": about} }
	condition := node{"type": "object", "required": []any{"type", "status", "lastTransitionTime", "reason", "message"}, "properties": node{
		"type":               text("Valid, and of a Site also Planned, Published and Progressing"),
		"status":             node{"type": "string", "enum": []any{"True", "False", "Unknown"}},
		"reason":             text("a word for programs"),
		"message":            text("for people"),
		"lastTransitionTime": node{"type": "string", "format": "date-time", "description": "when the status changed"},
		"observedGeneration": node{"type": "integer", "format": "int64", "description": "metadata.generation of what was looked at"}}}
	properties := node{
		"observedGeneration": node{"type": "integer", "format": "int64", "description": "metadata.generation of what was looked at last"},
		"conditions": node{"type": "array", "items": condition, "x-kubernetes-list-type": "map",
			"x-kubernetes-list-map-keys": []any{"type"}},
		"problems": node{"type": "array", "description": "what is wrong, each with its place in the object",
			"items": node{"type": "object", "properties": node{
				"severity": text("error or warning"), "path": text("of the field, as a JSON path"),
				"rule": text("a word for programs"), "message": text("what is wrong"), "hint": text("what to do")}}},
	}
	if k.Kind == Site {
		properties["generation"] = node{"type": "integer", "format": "int64", "description": "of the fleet, as it is published"}
		properties["plan"] = text("digest of what publishing would change now; a PublishApproval names it")
		properties["message"] = text("the fleet in one line")
		properties["changes"] = node{"type": "object",
			"description": "nodes that publishing would change, by how much it disturbs them", "additionalProperties": node{"type": "integer"}}
	}
	return node{"type": "object", "properties": properties}
}
