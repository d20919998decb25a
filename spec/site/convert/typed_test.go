// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestOddValues puts a list and a map in place of each scalar of documents in which another
// text would change what comes out: the word in it is in the site, or it has a reason.
func TestOddValues(t *testing.T) {
	docs := map[string]string{"cloud-config": cloudConfig, "ignition": ignition, "butane": butane}
	for _, c := range others {
		if c.kind == "machineconfig" || c.kind == "netplan" || c.kind == "talos" {
			docs[c.kind] += strings.Split(c.text, "---\n")[0] + "\x00"
		}
	}
	for kind, texts := range docs {
		for _, text := range strings.Split(strings.TrimSuffix(texts, "\x00"), "\x00") {
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				t.Fatal(err)
			}
			blocks(&doc)
			had := imports(t, kind, &doc)
			each(&doc, func(n *yaml.Node) {
				was := *n
				n.SetString("oddword")
				other := imports(t, kind, &doc)
				*n = was
				if other.site == had.site && maps.Equal(other.why, had.why) {
					return
				}
				for _, odd := range []string{"[oddword, [oddword]]", "{oddword: oddword}"} {
					var in yaml.Node
					if err := yaml.Unmarshal([]byte(odd), &in); err != nil {
						t.Fatal(err)
					}
					*n = *in.Content[0]
					now := imports(t, kind, &doc)
					*n = was
					fresh := strings.Contains(now.site, "oddword")
					for why := range now.why {
						fresh = fresh || !had.why[why]
					}
					if !fresh {
						t.Errorf("%s: %q as %s goes without a reason", kind, was.Value, odd)
					}
				}
			})
		}
	}
}

// blocks writes maps and lists a line an entry.
func blocks(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for _, c := range n.Content {
		blocks(c)
	}
}

// each calls f for the values that are scalars.
func each(n *yaml.Node, f func(*yaml.Node)) {
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 0:
		case c.Kind == yaml.ScalarNode:
			f(c)
		default:
			each(c, f)
		}
	}
}

type outcome struct {
	site string
	why  map[string]bool
}

// imports writes a document and imports it.
func imports(t *testing.T, kind string, doc *yaml.Node) outcome {
	t.Helper()
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Import([]File{{Name: "f", Kind: kind, Data: text}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(r.Parts())
	if err != nil {
		t.Fatal(err)
	}
	i := outcome{site: string(out), why: map[string]bool{}}
	for _, l := range r.Coverage {
		if l.Why != "" {
			i.why[l.Text+": "+l.Why] = true
		}
	}
	return i
}
