// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	goyaml "go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/caisson-os/caisson/kube/kubetest"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/report"
)

// example is a site in one file that is valid as a file, and could be objects.
type example struct{ name, text string }

const siteHead = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\n"

var at = cluster.Day(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC))

// examples returns every example of the repository, and every row of its tables of rules.
func examples(t *testing.T) (out []example) {
	t.Helper()
	found, _ := filepath.Glob("../examples/*/site.yaml")
	for _, name := range found {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, example{name, string(data)})
	}
	tables, _ := filepath.Glob("../spec/site/testdata/rules/*.txtar")
	for _, name := range tables {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range archive.Files {
			text := string(row.Data) + siteHead
			if !strings.Contains(text, "\nnodes:") && !strings.HasPrefix(text, "nodes:") {
				text += "nodes: [{name: n1, labels: {role: db}}, {name: n2}]\n"
			}
			out = append(out, example{filepath.Base(name) + ": " + row.Name, text})
		}
	}
	if len(out) < 300 {
		t.Fatalf("only %d examples were found", len(out))
	}
	return out
}

// meaning is all that a site makes of itself for its nodes.
func meaning(t *testing.T, s *site.Site) string {
	t.Helper()
	var b strings.Builder
	for _, n := range s.Nodes() {
		layer := ""
		if s.HasLayer() {
			layer = "sha256:" + strings.Repeat("0", 64)
		}
		o, err := s.Overlay(n.Name, layer)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", n.Name, err)
			continue
		}
		doc, err := spec.Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", doc)
	}
	return b.String()
}

// sent is what kubectl sends of a file: each document as JSON, by the library that it reads
// YAML with.
func sent(text string) (out []map[string]any, err error) {
	for d := goyaml.NewDecoder(strings.NewReader(text)); ; {
		var doc goyaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		one, err := goyaml.Marshal(&doc) // scalars keep their spelling
		if err != nil {
			return nil, err
		}
		data, err := yaml.YAMLToJSON(one)
		if err != nil {
			return nil, err
		}
		var content map[string]any
		d := json.NewDecoder(bytes.NewReader(data))
		if err := d.Decode(&content); err != nil {
			return nil, err
		}
		if content != nil {
			out = append(out, content)
		}
	}
}

// token is a scalar in a line of YAML.
var token = regexp.MustCompile(`^("[^"]*"|'[^']*'|[^\s,\]}#]+)`)

// quoted does to a text what 'validate --for-cluster' says.
func quoted(text string, problems []report.Problem) string {
	lines := strings.Split(text, "\n")
	slices.SortFunc(problems, func(a, b report.Problem) int { return b.Column - a.Column })
	for _, p := range problems {
		line := []rune(lines[p.Line-1])
		before, rest := string(line[:p.Column-1]), string(line[p.Column-1:])
		was := token.FindString(rest)
		now := strings.TrimPrefix(p.Hint, "quote it: ")
		if words := strings.Fields(p.Hint); words[0] == "write" {
			now = strings.TrimSuffix(words[1], ",")
		}
		lines[p.Line-1] = before + now + strings.TrimPrefix(rest, was)
	}
	return strings.Join(lines, "\n")
}

// forCluster returns the text as it can be applied, and whether it can be at all.
func forCluster(text string) (string, bool) {
	for range 3 {
		r := &report.Report{}
		cluster.Check(&report.Source{Name: "x", Data: []byte(text)}, r)
		if len(r.Problems) == 0 {
			return text, true
		}
		for _, p := range r.Problems {
			if p.Rule != "quoted" {
				return text, false
			}
		}
		text = quoted(text, r.Problems)
	}
	return text, false
}

type nothing struct{}

func (nothing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func objectsOf(contents []map[string]any) (out []cluster.Object) {
	for _, c := range contents {
		out = append(out, cluster.ObjectOf(c))
	}
	return out
}

// TestBothWays: what files say, objects say, and mean the same to the byte; or they are
// refused. Quotes that --for-cluster asks for change nothing.
func TestBothWays(t *testing.T) {
	same, refused := 0, 0
	for _, e := range examples(t) {
		s, r := site.ParseAt(at, fstest.MapFS{"site.yaml": {Data: []byte(e.text)}}, "site.yaml")
		if r.Err() != nil {
			continue // it is wrong as a file
		}
		want := meaning(t, s)
		contents, err := sent(e.text)
		if err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		if as, _ := cluster.Parse(at, nothing{}, ".", nil, objectsOf(contents)); as != nil && meaning(t, as) != want {
			t.Errorf("%s: as it is, it means something else as objects:\n%s", e.name, e.text)
		}
		text, ok := forCluster(e.text)
		if !ok {
			refused++
			continue
		}
		if contents, err = sent(text); err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		as, problems := cluster.Parse(at, nothing{}, ".", nil, objectsOf(contents))
		switch {
		case as == nil:
			t.Errorf("%s: valid as a file, and with the quotes refused as objects: %+v\n%s", e.name, problems, text)
		case meaning(t, as) != want:
			t.Errorf("%s: with the quotes it means something else:\n%s\n%s\n%s", e.name, text, meaning(t, as), want)
		default:
			same++
		}
	}
	t.Logf("%d mean the same, %d name files", same, refused)
	if same < 70 {
		t.Errorf("only %d sites were compared", same)
	}
}

// TestThroughServer: the API server's definitions take what files say, and give back what was
// written: nothing is pruned, filled in or converted that would mean something else.
func TestThroughServer(t *testing.T) {
	c := kubetest.Start(t)
	compared := 0
	for i, e := range examples(t) {
		s, r := site.ParseAt(at, fstest.MapFS{"site.yaml": {Data: []byte(e.text)}}, "site.yaml")
		text, ok := forCluster(e.text)
		if r.Err() != nil || !ok || slices.ContainsFunc(r.Problems, func(p report.Problem) bool { return p.Rule == "dead-override" }) {
			continue // what has no effect in a file has no place in an object
		}
		contents, err := sent(text)
		if err != nil {
			t.Fatal(err)
		}
		namespace := fmt.Sprintf("e%d", i)
		c.Namespace(t, namespace)
		var stored []cluster.Object
		taken := true
		for _, content := range contents {
			u := &unstructured.Unstructured{Object: content}
			u.SetNamespace(namespace)
			if err := c.Admin.Create(t.Context(), u, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %v\n%s", e.name, err, text)
				taken = false
				if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
					t.FailNow()
				}
				break
			}
			back := &unstructured.Unstructured{}
			back.SetGroupVersionKind(sites.GVK(u.GetKind()))
			if err := c.Admin.Get(t.Context(), client.ObjectKeyFromObject(u), back); err != nil {
				t.Fatal(err)
			}
			stored = append(stored, cluster.ObjectOf(back.Object))
		}
		if !taken {
			continue
		}
		as, problems := cluster.Parse(at, nothing{}, ".", nil, stored)
		if as == nil {
			t.Errorf("%s: %+v\n%s", e.name, problems, text)
		} else if got, want := meaning(t, as), meaning(t, s); got != want {
			t.Errorf("%s: from the server it means something else:\n%s\n%s\n%s", e.name, text, got, want)
		}
		compared++
	}
	t.Logf("%d sites went through the server", compared)
}
