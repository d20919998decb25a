// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Object is an object of one of our kinds, as an API server has it.
type Object struct {
	Kind, Name string
	Content    map[string]any // all of it; status and most of the metadata are not read
}

// List reads what kubectl get prints with -o json. What is of no kind of a site is left out.
func List(data []byte) ([]Object, error) {
	var list struct{ Items []map[string]any }
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a number keeps its spelling
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	return slices.DeleteFunc(plain.Each(list.Items, ObjectOf), func(o Object) bool { return !IsKind(o.Kind) }), nil
}

// ObjectOf names an object by what it says of itself.
func ObjectOf(content map[string]any) Object {
	o := Object{Content: content}
	o.Kind, _ = content["kind"].(string)
	metadata, _ := content["metadata"].(map[string]any)
	o.Name, _ = metadata["name"].(string)
	return o
}

// Problem describes a fault of an object. It names none where the fault is in what stands beside
// the objects, or in all of them.
type Problem struct {
	Kind, Name     string
	report.Problem // Path is one of JSON, as kubectl prints them
}

// Member is a Node of the cluster, as far as an inventory asks for it.
type Member = inventory.Member

// Members reads the JSON of kubectl get nodes.
func Members(data []byte) ([]Member, error) { return inventory.Members(data) }

// Reader reads objects as sites, as if they were files in a directory of Files: there are
// keys and the lock of services.
type Reader struct {
	Files fs.FS
	Nodes func() ([]Member, error) // Nodes of the cluster, asked for where the site means some; nil: they cannot be
	Known *Known                   // nil remembers nothing

	Keys func(role string) []string // files with public keys that count where no document names any, see [KeysBeside]; nil has one a role
}

// KeysBeside lists the public keys of a role in a directory: keys/ROLE.pub, keys/ROLE2.pub and so
// on, as many as there are in a row.
func KeysBeside(fsys fs.FS, dir string) func(role string) []string {
	return func(role string) (names []string) {
		for n := 1; n == len(names)+1; n++ {
			name := role
			if n > 1 {
				name += strconv.Itoa(n)
			}
			name = path.Join(dir, "keys", name+".pub")
			if _, err := fs.Stat(fsys, name); err == nil { // what cannot be looked at is missed where it is needed
				names = append(names, name)
			}
		}
		return names
	}
}

// Parse reads objects as a site. Files may be named that are site documents, too; the
// objects have the last word over them. Without an error among the problems there is a site.
func (x Reader) Parse(at time.Time, dir string, beside []string, objects []Object) (*site.Site, []Problem) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b Object) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	f := files{FS: x.Files, objects: map[string]*prepared{}}
	r, names, sites := &report.Report{}, slices.Clone(beside), 0
	for _, one := range x.Known.all(dir, objects) {
		f.objects[one.src.Name] = one
		names = append(names, one.src.Name)
		for _, p := range one.problems {
			r.Add(p)
		}
		if one.Kind == Site {
			if sites++; sites > 1 {
				r.Add(report.Problem{At: report.Pos{Src: one.src, Line: 1, Col: 1}, Severity: report.Error, Rule: "second-site",
					Message: "the namespace has more than one Site", Hint: "keep one: a namespace is a fleet"})
			}
		}
	}
	if sites == 0 && len(beside) == 0 {
		r.Add(report.Problem{Severity: report.Error, Rule: "no-site", Message: "the namespace has no Site",
			Hint: "apply an object of kind Site: a namespace is a fleet"})
	}
	var s *site.Site
	if r.Err() == nil { // nothing that an object names is opened before
		var found *report.Report
		s, found = site.ParseFrom(at, &site.Cluster{Nodes: x.Nodes, Keys: x.Keys}, f, names...)
		for _, p := range found.Problems {
			r.Add(p)
		}
	}
	r.Sort()
	return s, f.problems(r)
}

// files are objects as files, beside those of the host.
type files struct {
	fs.FS
	objects map[string]*prepared // by name of the file
}

// Parsed returns an object as a tree: no file has it.
func (f files) Parsed(name string) (*report.Source, []*tree.Value) {
	p := f.objects[name]
	switch {
	case p == nil:
		return nil, nil
	case p.doc == nil:
		return p.src, nil
	}
	return p.src, []*tree.Value{p.doc}
}

// problems gives each problem its object, and its place there.
func (f files) problems(r *report.Report) []Problem {
	var out []Problem
	for _, p := range r.Problems {
		w, one := f.objects[p.File], Problem{Problem: p}
		if w == nil {
			out = append(out, one)
			continue
		}
		one.Kind, one.Name = w.Kind, w.Name
		if p.Line > 0 && p.Line <= len(w.paths) {
			one.Path, one.File, one.Line, one.Column = w.paths[p.Line-1], w.Kind+"/"+w.Name, 0, 0
			one.At = report.Pos{}
		}
		out = append(out, one)
	}
	return out
}

// Day is when a site from a cluster is read: the beginning of a day of UTC. What comes of
// objects is the same for all who look at them on that day, so that one can approve what
// another publishes.
func Day(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// SecretValue returns an entry of a Secret, as kubectl get prints it with -o json. No error
// quotes what the Secret has.
func SecretValue(data []byte, key string) ([]byte, error) {
	var o struct {
		Kind string            `json:"kind"`
		Data map[string][]byte `json:"data"`
	}
	if json.Unmarshal(data, &o) != nil || o.Kind != "Secret" {
		return nil, errors.New("what was read is not a Secret")
	}
	value, ok := o.Data[key]
	if !ok {
		return nil, fmt.Errorf("the Secret has no key %q", key)
	}
	return value, nil
}

// written is an object as the tree that its file would be. The line of a place in it is the
// number of a path, and the column tells a key from its value.
type written struct {
	Object
	src   *report.Source // without data
	doc   *tree.Value    // nil where it is over
	paths []string       // JSON paths: of each value, and of the end of each that has others
	most  int            // of the paths; what has more is not taken to its end
	over  bool           // it has more, or is nested too deep
	nul   []report.Pos   // texts with a NUL character
}

// Bounds of what is taken apart, whatever an API server stored. A path takes some 700 bytes with
// its value while it is taken apart, of which half stay.
const (
	MaxValues   = 128 << 10 // paths of an object,
	MaxTogether = 256 << 10 // of all objects of a namespace, and of all that are remembered
	maxDepth    = 64        // as in files
)

// write makes a tree of an object, of so many paths at most: what the cluster adds to it is left
// out.
func write(o Object, name string, most int) written {
	w := written{Object: o, src: &report.Source{Name: name}, most: most}
	doc := map[string]any{}
	for key, v := range o.Content {
		if key != "metadata" && key != "status" {
			doc[key] = v
		}
	}
	doc["metadata"] = map[string]any{"name": o.Name}
	if w.doc = w.value(doc, "", 0); w.over {
		w.doc, w.paths = nil, nil
	}
	return w
}

// value returns a value at a path, and adds its paths.
func (w *written) value(v any, path string, depth int) *tree.Value {
	if w.over = w.over || len(w.paths) >= w.most || depth > maxDepth; w.over {
		return nil
	}
	w.paths = append(w.paths, path)
	out := &tree.Value{Kind: tree.Scalar, Plain: true, At: report.Pos{Src: w.src, Line: int32(len(w.paths)), Col: 2}}
	switch v := v.(type) {
	case map[string]any:
		out.Kind, out.Plain, out.Fields = tree.Mapping, false, make([]tree.Field, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := report.Pos{Src: w.src, Line: int32(len(w.paths) + 1), Col: 1}
			out.Fields = append(out.Fields, tree.Field{Key: key, At: at, Val: w.value(v[key], path+member(key), depth+1)})
		}
		w.end(path, len(v))
	case []any:
		out.Kind, out.Plain, out.List = tree.Sequence, false, make([]*tree.Value, len(v))
		for i, e := range v {
			out.List[i] = w.value(e, path+"["+strconv.Itoa(i)+"]", depth+1)
		}
		w.end(path, len(v))
	case string:
		if out.Text, out.Plain = v, false; strings.ContainsRune(v, 0) {
			w.nul = append(w.nul, out.At)
		}
	case nil:
		out.Kind = tree.Null
	case bool, int64, int, json.Number:
		out.Text = fmt.Sprint(v)
	default: // a float64: what has a fraction, or an exponent
		text, err := json.Marshal(v)
		if out.Text = string(text); err != nil {
			out.Text, out.Plain = fmt.Sprint(v), false // JSON has no such number
		}
	}
	return out
}

// end adds the path of the end of what has values.
func (w *written) end(path string, n int) {
	if n > 0 {
		w.paths = append(w.paths, path)
	}
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// member is a step of a JSON path, as kubectl takes it.
func member(key string) string {
	if word.MatchString(key) {
		return "." + key
	}
	return "['" + strings.ReplaceAll(key, "'", `\'`) + "']"
}
