// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
)

// BenchmarkParse: a namespace of many objects, as each look at it and each kubectl apply reads it.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := []Object{{Kind: Site, Name: "metal-a", Content: map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": Site, "metadata": map[string]any{"name": "metal-a"}, "nodes": []any{map[string]any{"name": "n1"}}}}}
			for i := range n {
				objects = append(objects, Object{Kind: "NodeSet", Name: fmt.Sprintf("s%d", i), Content: map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": "NodeSet", "metadata": map[string]any{"name": fmt.Sprintf("s%d", i)},
					"spec": map[string]any{"match": map[string]any{"labels": map[string]any{"rack": fmt.Sprintf("r%d", i)}}}}})
			}
			for name, reader := range map[string]Reader{"anew": {Files: &none{}}, "known": {Files: &none{}, Known: &Known{}}} {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						if s, problems := reader.Parse(noon, ".", nil, objects); s == nil {
							b.Fatal(problems)
						}
					}
				})
			}
		})
	}
}
