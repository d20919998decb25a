// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"strings"
)

// Document is a document of one kind.
type Document struct {
	Type  reflect.Type
	Whole bool // it is never laid over another
}

// Kind returns what the documents of a type say in their field kind, "" where they have none.
func Kind[T any]() string { return Document{Type: reflect.TypeFor[T]()}.Kind() }

// Kind returns what the document says in its field kind, "" where it has none.
func (d Document) Kind() string {
	for _, f := range structFields(d.Type) {
		if f.Name == "kind" && len(f.enum) == 1 {
			return f.enum[0]
		}
	}
	return ""
}

// Schema returns the JSON Schema (draft 2020-12) of the first document. Where it
// is lenient, unknown keys are allowed. The others may stand in the same file: an
// editor holds each to its own part.
func Schema(id, title string, lenient bool, first Document, others ...Document) ([]byte, error) {
	g := Generator{defs: map[string]any{}, types: map[string]reflect.Type{}, values: lenient, whole: first.Whole}
	out := g.object(structFields(first.Type), false)
	// a document is a whole
	maps.DeleteFunc(out["properties"].(map[string]any), func(name string, _ any) bool { return strings.HasPrefix(name, "+") })
	for _, o := range others {
		g.whole = o.Whole
		out = map[string]any{
			"if":   map[string]any{"properties": map[string]any{"kind": map[string]any{"const": o.Kind()}}, "required": []string{"kind"}},
			"then": g.Of(o.Type, false),
			"else": out,
		}
	}
	out["$schema"], out["$id"], out["title"] = "https://json-schema.org/draft/2020-12/schema", id, title
	if len(g.defs) > 0 {
		out["$defs"] = g.defs
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(out)
	return b.Bytes(), err
}

// Generator makes a schema of types. Structs that are used below maps of conf
// have no required fields: another file or an override may hold the rest.
type Generator struct {
	defs   map[string]any
	types  map[string]reflect.Type // of those of defs that are structs
	values bool                    // Divingbell's file: unknown keys are only warned of
	whole  bool                    // what is made now is part of a list's entry, which is never laid over another
}

// shaped is implemented by a type whose schema its fields do not tell.
type shaped interface {
	Schema(g *Generator) any
}

// Of is the schema of a type. Partial: another file or an override may hold the rest.
func (g *Generator) Of(t reflect.Type, partial bool) any {
	if s, ok := reflect.New(t).Interface().(shaped); ok {
		return s.Schema(g)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.Of(t.Elem(), partial)
	case reflect.Slice:
		defer func(whole bool) { g.whole = whole }(g.whole)
		g.whole = true
		return map[string]any{"type": "array", "items": g.Of(t.Elem(), false)}
	case reflect.Struct:
		name := defName(t, partial)
		if other, ok := g.types[name]; ok && other != t {
			panic(other.String() + " and " + t.String() + " have one name in the schema")
		}
		g.types[name] = t
		return g.named(name, structFields(t), partial)
	case reflect.Interface:
		return map[string]any{}
	}
	panic("no schema for " + t.String())
}

// packagePath matches the path before a type's name, of it or of its argument.
var packagePath = regexp.MustCompile(`[\w.-]+(/[\w.-]+)*\.`)

// defName is a type's name in the schema: stanza-modules for stanzaDoc[conf.ModulesDoc].
func defName(t reflect.Type, partial bool) string {
	words := strings.Split(strings.TrimSuffix(packagePath.ReplaceAllString(t.Name(), ""), "]"), "[")
	for i, w := range words {
		w = strings.TrimSuffix(w, "Doc")
		if words[i] = strings.ToLower(w[:1]) + w[1:]; w == strings.ToUpper(w) {
			words[i] = strings.ToLower(w)
		}
	}
	name := strings.Join(words, "-")
	if partial {
		name += "-partial"
	}
	return name
}

// Fields returns the schema of a map with these keys, under a name of its own.
func (g *Generator) Fields(name string, fields []Field) any { return g.named(name, fields, false) }

func (g *Generator) named(name string, fields []Field, partial bool) any {
	if _, ok := g.defs[name]; !ok {
		g.defs[name] = nil // it may contain itself
		g.defs[name] = g.object(fields, partial)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (g *Generator) object(fields []Field, partial bool) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fields {
		s := any(map[string]any{"enum": f.enum})
		if f.enum == nil {
			s = g.Of(f.Type, false)
		}
		if !f.required || partial {
			s = g.OrNull(s)
		}
		if f.Doc != "" {
			s = withDoc(s, f.Doc)
		}
		properties[f.Name] = s
		g.alsoAppended(properties, f.Name)
		if f.required && !partial {
			required = append(required, f.Name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties}
	if !g.values {
		out["additionalProperties"] = false
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// alsoAppended adds "+name" beside a property that takes a list: a Site may write
// that the list is laid after another. It says less than the parser, which knows
// where there may be another.
func (g *Generator) alsoAppended(properties map[string]any, name string) {
	if list := g.listOf(properties[name]); list != nil && !g.values && !g.whole {
		properties["+"+name] = withDoc(list, "entries after those of "+name+" that stand below, instead of in their place")
	}
}

// listOf returns the alternative of a schema that is a list, or nil.
func (g *Generator) listOf(s any) map[string]any {
	m, _ := s.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		return g.listOf(g.defs[strings.TrimPrefix(ref, "#/$defs/")])
	}
	if m["type"] == "array" {
		return m
	}
	alternatives, _ := m["anyOf"].([]any)
	for _, a := range alternatives {
		if list := g.listOf(a); list != nil {
			return list
		}
	}
	return nil
}

// define gives a schema a name to refer to.
func (g *Generator) define(name string, s any) any {
	g.defs[name] = s
	return map[string]any{"$ref": "#/$defs/" + name}
}

// OrNull allows a null too: it is as if the key were not written.
func (g *Generator) OrNull(s any) any {
	if ref, ok := s.(map[string]any)["$ref"].(string); ok {
		return g.define(strings.TrimPrefix(ref, "#/$defs/")+"-or-null", map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}})
	}
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
}

func withDoc(s any, doc string) any {
	m := map[string]any{"description": doc}
	maps.Copy(m, s.(map[string]any))
	return m
}

func (*Text) Schema(g *Generator) any {
	return g.define("text", map[string]any{"type": []string{"string", "number", "boolean"}})
}

func (*Flag) Schema(g *Generator) any {
	var words []string
	for _, w := range []string{"true", "false", "on", "off", "yes", "no", "y", "n"} {
		words = append(words, w, strings.ToUpper(w[:1])+w[1:], strings.ToUpper(w))
	}
	return g.define("flag", map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, map[string]any{"enum": words}}})
}

func (*Number) Schema(g *Generator) any {
	return g.define("number", map[string]any{"anyOf": []any{map[string]any{"type": "integer"},
		map[string]any{"type": "string", "pattern": "^[-+]?[0-9]+$"}}})
}

func (*Duration) Schema(g *Generator) any {
	return g.define("duration", map[string]any{"type": "string", "pattern": durationText.String()})
}

func (*Pause) Schema(g *Generator) any {
	return g.define("pause", map[string]any{"type": "string", "pattern": pauseText.String()})
}

func (*Words) Schema(g *Generator) any {
	text := (*Text)(nil).Schema(g)
	return g.define("words", map[string]any{"anyOf": []any{text, map[string]any{"type": "array", "items": text}}})
}

func (m *Map[T]) Schema(g *Generator) any {
	t := reflect.TypeFor[T]()
	s := g.Of(t, true)
	if t.Kind() == reflect.Slice {
		s = g.OrNull(s)
	}
	return map[string]any{"type": "object", "additionalProperties": s}
}

func (r *Raw[T]) Schema(g *Generator) any {
	defer func(whole bool) { g.whole = whole }(g.whole)
	g.whole = false
	return g.Of(reflect.TypeFor[T](), false)
}
