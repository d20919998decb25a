// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
	text, err := encodeYAML(node{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": node{"name": k.Plural + "." + Group},
		"spec": node{"group": Group, "scope": "Namespaced",
			"names": node{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural,
				"singular": strings.ToLower(k.Kind), "categories": []string{"caisson"}},
			"versions": []any{version}}})
	return text, err
}

func encodeYAML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
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
	var out []any
	for _, c := range k.columns {
		out = append(out, node{"name": c.name, "type": c.kind, "jsonPath": c.path})
	}
	for _, c := range k.wide {
		out = append(out, node{"name": c.name, "type": c.kind, "jsonPath": c.path, "priority": 1})
	}
	return out
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
