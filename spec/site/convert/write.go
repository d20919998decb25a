// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlOf writes plain data as YAML in which every value is quoted text, or a block of
// lines, so that no reader makes a number or a boolean of it.
func yamlOf(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(nodeOf(v)); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

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
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, e := range l {
			n.Content = append(n.Content, nodeOf(e))
		}
		return n
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
		text, err := yamlOf(r.parts())
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

// parts are those of a site that have a value, conf in any case where no other has.
func (r *Result) parts() map[string]any {
	out := map[string]any{}
	if len(r.Conf) > 0 || len(r.Machine) == 0 {
		out["conf"] = r.Conf
	}
	if len(r.Machine) > 0 {
		out[machine] = r.Machine
	}
	return out
}

// documentsText writes several documents as one file.
func documentsText(docs []any) ([]byte, error) {
	var parts [][]byte
	for _, d := range docs {
		text, err := yamlOf(d)
		if err != nil {
			return nil, err
		}
		parts = append(parts, text)
	}
	return bytes.Join(parts, []byte("---\n")), nil
}
