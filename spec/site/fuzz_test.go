// SPDX-License-Identifier: Apache-2.0

package site

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// FuzzParse: whatever is read, nothing panics; what is valid compiles for every
// node to bytes that a node takes, and can be explained.
func FuzzParse(f *testing.F) {
	examples, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(examples) == 0 {
		f.Fatal("no examples", err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, r := range rules {
		f.Add(head + r.text)
	}
	f.Add(`{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}]}`)
	f.Add("a: &a {b: *a}\n<<: [*a, *a]\n? [x]\n: y\n--- !t\n...\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			t.Skip()
		}
		s, r := Parse(files("site.yaml", text), "site.yaml")
		r.Write(io.Discard)
		if (s == nil) != (r.Err() != nil) {
			t.Fatalf("site %v, error %v", s != nil, r.Err())
		}
		if s == nil {
			return
		}
		names := []string{"no-node-has-this-name"}
		for _, n := range s.Nodes() {
			names = append(names, n.Name)
			data, err := s.Compile(n.Name, "")
			if err != nil {
				t.Fatal(err)
			}
			var o spec.Overlay
			if err := spec.Decode(data, &o); err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
		}
		for _, name := range names {
			e, err := s.Explain(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			e.Write(io.Discard)
		}
		if s.HasLayer() {
			if _, err := s.Variants(); err != nil {
				t.Fatal(err)
			}
		}
		if p := s.Plan(nil, nil); len(p.Nodes) != len(s.Nodes()) {
			t.Errorf("a plan of %d nodes for %d", len(p.Nodes), len(s.Nodes()))
		}
	})
}

// FuzzMerge: on any two maps the merger agrees with the reference, and changes
// neither.
func FuzzMerge(f *testing.F) {
	f.Add("a: {b: 1}\n", "a: {b: 2, c: [1]}\n")
	f.Add("a: [1]\n", "a: {b: 2}\n")
	f.Add("a: &a {b: 1}\nc: *a\n", "a:\nc: {b: {}}\n")
	f.Fuzz(func(t *testing.T, base, over string) {
		if len(base)+len(over) > 1<<12 {
			t.Skip()
		}
		read := func(text string) *value {
			r := &Report{}
			docs := parseYAML(&source{name: "x"}, []byte(text), r)
			if r.Err() != nil || len(docs) != 1 || docs[0].kind != mapping || docs[0].size > 1<<12 {
				return nil
			}
			return docs[0]
		}
		b, o := read(base), read(over)
		if b == nil || o == nil {
			t.Skip()
		}
		plainBase, plainOver := plainOf(b).(map[string]any), plainOf(o).(map[string]any)
		got := plainOf(mergeOverride(b, o, func(*value) {}))
		if want := reference(plainBase, plainOver); !reflect.DeepEqual(got, any(want)) {
			t.Errorf("got %v, want %v", got, want)
		}
		if !reflect.DeepEqual(plainOf(b), any(plainBase)) || !reflect.DeepEqual(plainOf(o), any(plainOver)) {
			t.Error("the merge changed its input")
		}
		// Files merge too, without an end that is not a map.
		if m := mergeFiles(b, o); m.kind != mapping {
			t.Errorf("files merge to %s", m.kind)
		}
	})
}

// FuzzCredentials: keys and hashes of any bytes are judged without a panic, and
// a judgement does not depend on what surrounds a key.
func FuzzCredentials(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICPETahEyllxaSmseT2t1YryzVztAMi7gzpQv6maqmbh x")
	f.Add(`command="a b",no-pty ssh-rsa AAAA x`)
	f.Add("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQ==")
	f.Add("ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAAAA")
	f.Add("$6$salt$")
	f.Fuzz(func(t *testing.T, text string) {
		hashProblem(text)
		if sshKeyProblem(text) == "" && sshKeyProblem("no-pty "+text) != "" {
			if kind, _ := sshKeyFields("no-pty " + text); kind != "" {
				t.Errorf("%q is good alone only", text)
			}
		}
	})
}
