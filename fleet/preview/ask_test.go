// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec/site"
)

// TestAsk: each layer's programs are asked about what its own nodes get, and where they are not,
// that is said of that layer alone.
func TestAsk(t *testing.T) {
	w := newRacks(t, 0, map[string]int{})
	w.rack["b"].packages = []string{"bee"}
	s := w.site()
	w.build(s)
	p, policy := w.publisher()
	nodes, err := p.Compile(t.Context(), s, policy, release.Current)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := p.Layers(t.Context(), policy, release.Current)
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	look := Preview{Site: s, Publisher: p, Policy: policy, Layer: release.Current}
	rule := func(of ...string) Texts {
		return func(_ context.Context, _ *site.Site, names []string) (sets [][]site.Text, err error) {
			for _, name := range of {
				if slices.Contains(names, name) {
					sets = append(sets, []site.Text{{Path: "/etc/sudoers.d/" + name, Content: "x", At: "site.yaml:1:1"}})
				}
			}
			return sets, nil
		}
	}
	only := func(names ...string) (some []publish.Node) {
		return slices.DeleteFunc(slices.Clone(nodes), func(n publish.Node) bool { return !slices.Contains(names, n.Name) })
	}
	variant := map[string]string{}
	for _, l := range layers {
		for _, n := range nodes {
			if n.Layer == l.Digest {
				variant[n.Name] = "layer " + l.Variant + " "
			}
		}
	}
	for name, c := range map[string]struct {
		nodes   []publish.Node
		brought Texts
		of      []string
	}{
		"no file has a reader": {nodes, nil, nil},
		"one layer":            {nodes, rule("b1"), []string{"b1"}},
		"both":                 {nodes, rule("a1", "b1"), []string{"a1", "b1"}},
		"of another node":      {only("a1", "a2"), rule("b1"), nil},
	} {
		unasked, err := look.Ask(t.Context(), c.nodes, t.TempDir(), c.brought)
		if err != nil || len(unasked) != len(c.of) {
			t.Errorf("%s: %q, %v", name, unasked, err)
		}
		for _, node := range c.of {
			if !slices.ContainsFunc(unasked, func(why string) bool {
				return strings.Contains(why, variant[node]) && strings.Contains(why, "not asked about files of its nodes, since ")
			}) {
				t.Errorf("%s: nothing is said of %s: %q", name, variant[node], unasked)
			}
		}
	}
	wrong := errors.New("no image")
	if _, err := look.Ask(t.Context(), nodes, "", func(context.Context, *site.Site, []string) ([][]site.Text, error) { return nil, wrong }); !errors.Is(err, wrong) {
		t.Errorf("files of services that cannot be read: %v", err)
	}
}
