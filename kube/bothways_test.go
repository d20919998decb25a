// SPDX-License-Identifier: Apache-2.0

package kube

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/test/kubetest"
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
	found, err := filepath.Glob("../examples/*/site.yaml")
	if err != nil || len(found) < 8 {
		t.Fatalf("%d examples: %v", len(found), err)
	}
	for _, name := range found {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, example{name, string(data)})
	}
	tables, err := filepath.Glob("../spec/site/testdata/rules/*.txtar")
	if err != nil || len(tables) < 19 {
		t.Fatalf("%d tables of rules: %v", len(tables), err)
	}
	for _, name := range tables {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range archive.Files {
			text := string(row.Data) + siteHead
			if !strings.Contains(text, "\nnodes:") && !strings.HasPrefix(text, "nodes:") {
				text += "nodes: [{name: n1, labels: {role: db}}, {name: n2}, {name: db-1, labels: {rack: r1}}]\n"
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
// files with.
func sent(text string) (out []map[string]any, err error) {
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var content map[string]any
		if err := d.Decode(&content); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
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
// refused. Quotes that --for-cluster asks for change nothing, and what is wrong as a file is
// wrong as objects.
func TestBothWays(t *testing.T) {
	same, refused, wrong := 0, 0, 0
	kinds := map[string]int{}
	for _, e := range examples(t) {
		s, r := site.ParseAt(at, fstest.MapFS{"site.yaml": {Data: []byte(e.text)}}, "site.yaml")
		if r.Err() != nil { // it is wrong as a file, and so as objects
			contents, err := sent(e.text)
			if err != nil {
				t.Errorf("%s: %v", e.name, err)
				continue
			}
			if as, _ := (cluster.Reader{Files: nothing{}}).Parse(at, ".", nil, objectsOf(contents)); as != nil {
				t.Errorf("%s: refused as a file (%v), and not as objects:\n%s", e.name, r.Err(), e.text)
			}
			wrong++
			continue
		}
		want := meaning(t, s)
		contents, err := sent(e.text)
		if err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		if as, _ := (cluster.Reader{Files: nothing{}}).Parse(at, ".", nil, objectsOf(contents)); as != nil && meaning(t, as) != want {
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
		as, problems := cluster.Reader{Files: nothing{}}.Parse(at, ".", nil, objectsOf(contents))
		switch {
		case as == nil:
			t.Errorf("%s: valid as a file, and with the quotes refused as objects: %+v\n%s", e.name, problems, text)
		case meaning(t, as) != want:
			t.Errorf("%s: with the quotes it means something else:\n%s\n%s\n%s", e.name, text, meaning(t, as), want)
		default:
			same++
			count(kinds, contents)
		}
	}
	t.Logf("%d mean the same, of kinds %v; %d name files, %d are wrong either way", same, kinds, refused, wrong)
	if same < 70 || refused < 5 || wrong < 280 {
		t.Errorf("only so many were compared")
	}
	everyKindIn(t, kinds)
}

// count notes the kinds of objects.
func count(kinds map[string]int, contents []map[string]any) {
	for _, o := range objectsOf(contents) {
		kinds[o.Kind]++
	}
}

// everyKindIn fails where a kind that people write was not compared.
func everyKindIn(t *testing.T, kinds map[string]int) {
	t.Helper()
	for _, k := range cluster.Kinds() {
		if k.Doc && kinds[k.Kind] == 0 {
			t.Errorf("no %s was compared", k.Kind)
		}
	}
}

// TestThroughServer: the API server's definitions take what files say, and give back what was
// written: nothing is pruned, filled in or converted that would mean something else.
func TestThroughServer(t *testing.T) {
	c := kubetest.Start(t)
	compared, kinds := 0, map[string]int{}
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
			back.SetGroupVersionKind(object.GVK(u.GetKind()))
			if err := c.Admin.Get(t.Context(), client.ObjectKeyFromObject(u), back); err != nil {
				t.Fatal(err)
			}
			stored = append(stored, cluster.ObjectOf(back.Object))
		}
		if !taken {
			continue
		}
		as, problems := cluster.Reader{Files: nothing{}}.Parse(at, ".", nil, stored)
		if as == nil {
			t.Errorf("%s: %+v\n%s", e.name, problems, text)
		} else if got, want := meaning(t, as), meaning(t, s); got != want {
			t.Errorf("%s: from the server it means something else:\n%s\n%s\n%s", e.name, text, got, want)
		}
		compared++
		count(kinds, contents)
	}
	t.Logf("%d sites went through the server, of kinds %v", compared, kinds)
	if compared < 68 {
		t.Errorf("only so many were compared")
	}
	everyKindIn(t, kinds)
}
