// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci/internal/strict"
)

// entry is what a layout's index.json has of a node.
func entry(name string) Named {
	d := Describe(MediaTypeManifest, []byte(name)).Bare()
	d.ArtifactType = TypeOverlay
	return Named{name, d}
}

func encodeIndex(list []Named) []byte {
	var b bytes.Buffer
	if err := WriteLayoutIndex(&b, slices.Values(list)); err != nil {
		panic(err) // a buffer takes all
	}
	return b.Bytes()
}

// annotated is a list with each name among the annotations, as the specification has it.
func annotated(list []Named) Index {
	x := Index{SchemaVersion: 2, MediaType: MediaTypeIndex, Manifests: []Descriptor{}}
	for _, n := range list {
		d := n.Descriptor
		if n.Name != "" {
			d.Annotations = map[string]string{AnnotationRefName: n.Name}
			for key, value := range n.Annotations {
				d.Annotations[key] = value
			}
		}
		x.Manifests = append(x.Manifests, d)
	}
	return x
}

// TestLayoutIndex: what is written is what encoding/json makes of it, and is read again as it was,
// in the quick way where all of it is plain.
func TestLayoutIndex(t *testing.T) {
	with := func(change func(*Named)) []Named {
		n := entry("node:n0")
		change(&n)
		return []Named{entry("node:a"), n, entry("node:z")}
	}
	for name, row := range map[string]struct {
		list []Named
		slow bool
	}{
		"empty":            {slow: true},
		"nodes":            {list: with(func(*Named) {})},
		"no tag":           {list: with(func(n *Named) { n.Name = "" })},
		"no kind":          {list: with(func(n *Named) { n.ArtifactType = "" })},
		"no bytes":         {list: with(func(n *Named) { n.Size = 0 })},
		"the largest":      {list: with(func(n *Named) { n.Size = MaxBlob })},
		"a quote":          {list: with(func(n *Named) { n.Name = `node:"` }), slow: true},
		"a name of others": {list: with(func(n *Named) { n.Name = "node:<é>" }), slow: true},
		"a kind of others": {list: with(func(n *Named) { n.ArtifactType = "a\\b" }), slow: true},
		"an annotation": {list: with(func(n *Named) {
			n.Annotations = map[string]string{AnnotationRefName: n.Name, "a": "b"}
		}), slow: true},
		"of a referrer":     {list: with(func(n *Named) { n.Name, n.Annotations = "", map[string]string{"a": "b"} }), slow: true},
		"of a platform":     {list: with(func(n *Named) { n.Platform = &Platform{Architecture: "amd64", OS: "linux"} }), slow: true},
		"content":           {list: with(func(n *Named) { n.Descriptor = Describe("text/plain", []byte("a")) }), slow: true},
		"looks like others": {list: with(func(n *Named) { n.ArtifactType = `},{"mediaType":` }), slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			raw := encodeIndex(row.list)
			if want := Encode(annotated(row.list)); string(raw) != string(want) {
				t.Errorf("%s, want %s", raw, want)
			}
			if _, quick := parseOwn(raw); quick == row.slow {
				t.Errorf("read quickly: %t", quick)
			}
			if list, err := ParseLayoutIndex(raw); err != nil || !reflect.DeepEqual(list, row.list) {
				t.Errorf("%+v, %v, want %+v", list, err, row.list)
			}
		})
	}
}

// TestLayoutIndexIsReadAtOnce: an entry costs its texts, not a decoder's work.
func TestLayoutIndexIsReadAtOnce(t *testing.T) {
	const nodes = 1000
	var list []Named
	for i := range nodes {
		list = append(list, entry(fmt.Sprintf("node:node-%04d", i)))
	}
	raw := encodeIndex(list)
	if allocs := testing.AllocsPerRun(3, func() {
		if _, err := ParseLayoutIndex(raw); err != nil {
			t.Error(err)
		}
	}); allocs > 8*nodes {
		t.Errorf("%.0f allocations for %d entries", allocs, nodes)
	}
}

// FuzzLayoutIndex: what is read in the quick way means the same in the other, and has one spelling.
func FuzzLayoutIndex(f *testing.F) {
	raw := encodeIndex([]Named{entry("node:a"), entry(""), entry("fleet:index")})
	f.Add(raw)
	f.Add(raw[:len(raw)-1])
	for _, change := range [][2]string{{`"size":`, `"size":0`}, {`,"artifactType":"`, `,"artifactType":"}\u007d`}, {"]}", ",]}"}, {"node:a", ""}, {"[{", "[ {"},
		{"sha256:", "sha512:"}, {`"manifests"`, `"Manifests"`}, {"]}", "]}\n"}, {"application/vnd.oci.image.manifest.v1+json", ""}} {
		f.Add([]byte(strings.Replace(string(raw), change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, ok := parseOwn(data)
		if !ok {
			return
		}
		var x Index
		if err := strict.Decode(data, &x); err != nil || !reflect.DeepEqual(x, annotated(list)) {
			t.Fatalf("%+v; slowly %+v, %v: %q", list, x, err, data)
		}
		if again := encodeIndex(list); string(again) != string(data) {
			t.Fatalf("%s; written again %s", data, again)
		}
	})
}
