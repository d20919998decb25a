// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/spec"
)

// differing says of each layer how it differs from the base.
type differing map[string]*release.Difference

func (d differing) Between(_ context.Context, from, to string) (*release.Difference, error) {
	if from != layer {
		return nil, fmt.Errorf("compared with %s", from)
	}
	if x, ok := d[to]; ok {
		return x, nil
	}
	return nil, errors.New("<b>no</b> key released it")
}

func other(n int) string { return fmt.Sprintf("sha256:%064d", n) }

// The layer that most nodes run is what the others are compared with; nothing that a
// package or a node is called is markup, and no list is endless.
func TestLayersPage(t *testing.T) {
	const bad = `<script>alert(1)</script>`
	names := []string{"n1", "n2"}
	for i := range 30 {
		names = append(names, fmt.Sprintf("m%02d", i))
	}
	s := newSite(t, rowsOf(names...), false)
	d := release.Difference{Kernel: &release.Change{From: "6.1", To: "6.12" + bad}, Packages: []release.Change{{Name: "curl" + bad, From: "8", To: "9"}, {Name: "gone", From: "1"}}}
	for i := range maxPackages {
		d.Packages = append(d.Packages, release.Change{Name: fmt.Sprintf("p%03d", i), To: "1"})
	}
	s.server.o.Layers = differing{other(0): &d}
	for i, name := range names {
		raw := sealed(t, newKey(t), name, 1, func(r *spec.Report) {
			if i > 1 {
				r.Layer, r.LayerVersion = other(i-2), bad
			}
		})
		if status, text := s.ask("POST", "/v1/report", raw); status != 204 {
			t.Fatal(status, text)
		}
	}
	status, text := s.ask("GET", "/layers", nil)
	if status != 200 || strings.Contains(text, bad) || strings.Contains(text, "<b>no</b>") {
		t.Fatal(status, text)
	}
	for _, want := range []string{"curl&lt;script&gt;", "<td>9</td><td>8</td>", "kernel 6.12&lt;script&gt;", `<td>gone</td><td><span class="faint">none</span></td><td>1</td>`, "and 2 packages more",
		"How it differs is not known: &lt;b&gt;no", "caisson diff registry.example/metal@" + layer + " registry.example/metal@" + other(0), "where fewer layers are in use"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	_, text = s.ask("GET", "/v1/layers", nil)
	var got Layers
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err, text)
	}
	if got.Base != layer || len(got.Layers) != 31 || got.Layers[0].Difference != nil || got.Layers[0].Trouble != "" || len(got.Layers[1].Difference.Packages) != maxPackages || got.Layers[1].More != 2 {
		t.Errorf("base %s, %d layers, %+v", got.Base, len(got.Layers), got.Layers[0])
	}
	compared := 0
	for _, l := range got.Layers {
		if strings.Contains(l.Trouble, "released") || l.Difference != nil {
			compared++
		}
	}
	if compared != maxCompared {
		t.Errorf("%d were compared", compared)
	}
	if len(d.Packages) != maxPackages+2 {
		t.Error("what is remembered was cut")
	}
}

// Layers of the same packages that differ by an account say so, and those that differ by
// what is in it.
func TestLayersPageSaysAccounts(t *testing.T) {
	const bad = `<script>alert(1)</script>`
	s := newSite(t, rowsOf("n1", "n2", "n3", "n4"), false)
	images := []release.ImageChange{{Name: spec.ImageAccounts, From: 1, To: 1, Fetch: 8192}}
	s.server.o.Layers = differing{
		other(0): {Accounts: []release.Change{{Name: "kim" + bad, To: "1001 active"}}, Images: images, Bytes: 8192},
		other(1): {Images: images, Bytes: 8192},
	}
	for i, name := range []string{"n1", "n2", "n3", "n4"} {
		raw := sealed(t, newKey(t), name, 1, func(r *spec.Report) {
			if i > 1 {
				r.Layer = other(i - 2)
			}
		})
		if status, text := s.ask("POST", "/v1/report", raw); status != 204 {
			t.Fatal(status, text)
		}
	}
	status, text := s.ask("GET", "/layers", nil)
	if status != 200 || strings.Contains(text, bad) {
		t.Fatal(status, text)
	}
	for _, want := range []string{"<td>kim&lt;script&gt;alert(1)&lt;/script&gt;</td><td>1001 active</td>", "The same accounts; of some the keys", "Images that differ: accounts; 8.2 kB to fetch"} {
		if strings.Count(text, want) < 1 {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A command that somebody copies into a shell has no word of a node in it but a digest.
func TestNoCommandOfANode(t *testing.T) {
	const bad = "x; touch owned #"
	rows := rowsOf("n1", "n2")
	row := rows["n1"]
	row.Layer = bad
	rows["n1"] = row
	s := newSite(t, rows, false)
	for node, layer := range map[string]string{"n1": bad, "n2": layer} {
		if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), node, 1, func(r *spec.Report) { r.Layer = layer })); (status == 204) != (node == "n2") {
			t.Fatal(status, text)
		}
	}
	_, text := s.ask("GET", "/layers", nil)
	if strings.Contains(text, "metal@"+bad) || !strings.Contains(text, "metal@"+layer) {
		t.Errorf("a command has a node's words in it:\n%s", text)
	}
}

// Before anybody reports there is nothing to compare with.
func TestLayersWithoutReports(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	s.server.o.Layers = differing{}
	_, text := s.ask("GET", "/v1/layers", nil)
	var got Layers
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Base != "" || len(got.Layers) != 1 || got.Layers[0].Trouble != "" {
		t.Error(err, text)
	}
}
