// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
)

// row is a configuration to carry through.
type row struct {
	name  string
	files fs.FS
	names []string
	must  bool // be a valid site
}

const head = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\n"

// TestCaps: what a publisher may write a node reads. Artifacts know no documents, and documents
// no artifacts, so both name the cap.
func TestCaps(t *testing.T) {
	if site.MaxOverlay != oci.MaxOverlay {
		t.Errorf("an overlay of %d bytes is written, and one of %d read", site.MaxOverlay, oci.MaxOverlay)
	}
}

// collect returns the examples, the YAML blocks of docs and the rule tables.
func collect(t *testing.T) []row {
	t.Helper()
	rows := append(examples(t), docs(t)...)
	return append(rows, tables(t)...)
}

func examples(t *testing.T) (rows []row) {
	t.Helper()
	for _, file := range glob(t, "../../examples/*/site.yaml", 4) {
		dir := filepath.Dir(file)
		rows = append(rows, row{"example " + filepath.Base(dir), os.DirFS(dir), []string{"site.yaml"}, true})
	}
	return rows
}

// block is a YAML block of a page; a first line "# not a site" opts out.
var block = regexp.MustCompile("(?ms)^```ya?ml\n(.*?)^```$")

func docs(t *testing.T) (rows []row) {
	t.Helper()
	for _, page := range append(glob(t, "../../docs/*.md", 5), "../../README.md") {
		for _, m := range block.FindAllSubmatchIndex(read(t, page), -1) {
			text := string(read(t, page)[m[2]:m[3]])
			line := 1 + bytes.Count(read(t, page)[:m[2]], []byte("\n"))
			if strings.HasPrefix(text, "# not a site") {
				continue
			}
			if !strings.Contains(text, "apiVersion:") && !strings.HasPrefix(text, "# values\n") && !strings.HasPrefix(text, "# armada\n") {
				text += head
			}
			r := inline(t, fmt.Sprintf("%s:%d", filepath.Base(page), line), text)
			r.must = true
			rows = append(rows, r)
		}
	}
	return rows
}

func tables(t *testing.T) (rows []row) {
	t.Helper()
	for _, table := range glob(t, "../../spec/site/testdata/rules/*.txtar", 10) {
		for _, f := range txtar.Parse(read(t, table)).Files {
			rows = append(rows, inline(t, f.Name, string(f.Data)+head))
		}
	}
	return rows
}

// inline is a row of one text, with what texts name beside it and a node for
// every override in it, so that every value is some node's. A Site gets a layer if
// it has none, or what is baked would reach nobody.
func inline(t *testing.T, name, text string) row {
	t.Helper()
	if strings.Contains(text, "kind: Site") && !strings.Contains(text, "layer:") && !strings.Contains(text, "attached:") {
		text += "layer: {base: {debian: {suite: trixie}}}\n"
	}
	return row{name: name, names: []string{"site.yaml", "contract.yaml"}, files: fstest.MapFS{
		"site.yaml":              {Data: []byte(text)},
		"contract.yaml":          {Data: nodesFor(text)},
		"nodes.yaml":             {Data: []byte("nodes: [{name: other}]")},
		"nodes.json":             {Data: []byte(`{"kind": "NodeList", "items": []}`)},
		"values.yaml":            {Data: []byte("conf: {}")},
		"divingbell-values.yaml": {Data: []byte("conf: {}")},
	}}
}

// locked adds a lock to a row whose site has services: nobody asks git here.
func locked(t *testing.T, r row) (*site.Site, error) {
	t.Helper()
	s, report := site.ParseAt(time.Now(), r.files, r.names...)
	if report.Err() != nil {
		return nil, report.Err()
	}
	files, inline := r.files.(fstest.MapFS)
	if len(s.Services().List) == 0 || !inline {
		return s, nil
	}
	lock := service.NewLock()
	for _, v := range s.Services().List {
		one := service.Locked{URL: v.Git.URL, Ref: v.Git.Ref(), From: v.From(), Commit: strings.Repeat("1", 40), Image: spec.Blob{Digest: digest, Size: 1}}
		if v.Git.AllowedSigners != "" {
			one.Signed = &service.Signed{Commit: one.Commit, Date: time.Unix(1, 0)}
		}
		lock.Services[v.Name] = one
	}
	data, err := lock.Encode()
	if err != nil {
		t.Fatal(err)
	}
	files[s.Services().LockFile] = &fstest.MapFile{Data: data}
	s, report = site.ParseAt(time.Now(), files, r.names...)
	return s, report.Err()
}

type node struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels,omitempty"`
}

// nodesFor returns an inventory with a node that no override names, and one for
// each that does: for the hosts that text does not list itself, and for each
// value of a label. All have the labels by which slots are taken and waves are divided.
func nodesFor(text string) []byte {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) != nil {
		return []byte("nodes: []\n") // the parser says what is wrong with it
	}
	nodes := []node{{Name: "contract"}}
	listed, hosts, groups := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, c := range n.Content {
			walk(c)
			if n.Kind != yaml.MappingNode || i%2 == 0 {
				continue
			}
			switch key := n.Content[i-1].Value; key {
			case "nodes", "hosts":
				for _, e := range c.Content {
					var named node
					if e.Decode(&named) == nil && named.Name != "" {
						map[string]map[string]bool{"nodes": listed, "hosts": hosts}[key][named.Name] = true
					}
				}
			case "waves", "order": // of a rollout: each names a node, a label that some have, or a set
				for _, e := range c.Content {
					var w struct {
						Hosts []string
						Each  string
					}
					if e.Decode(&w) == nil {
						for _, name := range w.Hosts {
							hosts[strings.NewReplacer("*", "x", "?", "x").Replace(name)] = true
						}
						groups[w.Each] = w.Each != ""
					}
				}
			case "by":
				groups[c.Value] = c.Value != ""
			case "per": // of a budget, whose percentage is of at least one node
				groups[c.Value] = c.Value != ""
				for range 20 {
					nodes = append(nodes, node{Name: fmt.Sprintf("contract-%d", len(nodes))})
				}
			case "label":
				var l struct {
					Key    string
					Values []string
				}
				if c.Decode(&l) == nil {
					for _, v := range l.Values {
						nodes = append(nodes, node{fmt.Sprintf("contract-%d", len(nodes)), map[string]string{l.Key: v}})
					}
				}
			}
		}
	}
	walk(&doc)
	for name := range hosts {
		if !listed[name] {
			nodes = append(nodes, node{Name: name})
		}
	}
	for i := range nodes {
		for label, ok := range groups {
			if _, has := nodes[i].Labels[label]; ok && !has {
				if nodes[i].Labels == nil {
					nodes[i].Labels = map[string]string{}
				}
				nodes[i].Labels[label] = "r1"
			}
		}
	}
	data, err := yaml.Marshal(map[string]any{"nodes": nodes})
	if err != nil {
		panic(err) // plain data
	}
	return data
}

func glob(t *testing.T, pattern string, least int) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < least {
		t.Fatalf("%s: only %v", pattern, files)
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
