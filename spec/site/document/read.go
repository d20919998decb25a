// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// Reader collects the documents of all files into one tree.
type Reader struct {
	*shape.Checker
	fsys    fs.FS
	Cluster *Cluster
	Tree    *tree.Value // merged documents without nodes
	Nodes   []inventory.NodeDoc
	Claims  []inventory.Claim // Nodes of the cluster

	Maintenance maintenance.Docs
	Rollouts    []waves.RolloutDoc
	Services    []service.ServiceDoc
	Site        bool // a Site document was among them
	parts       bool // documents of other kinds were
	Dir         string
	open        []string // files being read, to find a file that names itself

	included map[string]bool // files that patterns named
}

// Cluster holds the parts that a site may name of the cluster whose objects it is read from, or is
// read with.
type Cluster struct {
	Nodes func() ([]inventory.Member, error) // all of its Nodes; nil where nobody asks it
	Keys  func(role string) []string         // files with public keys that count where no document names any; nil has one a role
}

// Read reads the named files and the files they name. Without any but
// inventories there is no tree, which is reported. The cluster is nil where there is none.
func Read(c *shape.Checker, cluster *Cluster, fsys fs.FS, names []string) *Reader {
	r := &Reader{Checker: c, Cluster: cluster, fsys: fsys, Dir: "."}
	for _, name := range names {
		r.read(name, report.Pos{}, false)
	}
	if r.Tree == nil && r.parts {
		r.Tree = &tree.Value{Kind: tree.Mapping} // a part of a site, looked at alone
	}
	if r.Tree == nil && c.Report.Err() == nil {
		p := report.Problem{Severity: report.Error, Rule: "form", Message: "nothing but nodes was given", Hint: formHint}
		if len(names) == 1 {
			p.File = names[0]
		}
		c.Report.Add(p)
	}
	return r
}

// Named returns the content of a file that a document names at a place, or that was given; nil,
// and a problem, where it cannot be read or has more than limit bytes. The hint is for one that
// is not there.
func (r *Reader) Named(name string, at report.Pos, limit int64, hint string) []byte {
	data, err := r.load(name, limit)
	return r.checked(name, at, hint, data, err)
}

// Optional returns the content of a file that need not be there, nil when it is not.
func (r *Reader) Optional(name string, limit int64) []byte {
	data, err := r.load(name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return r.checked(name, report.Pos{}, "", data, err)
}

// errMore begins the error of a file that is too large.
var errMore = errors.New("more than")

// load reads a file of at most limit bytes.
func (r *Reader) load(name string, limit int64) ([]byte, error) {
	f, err := r.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w %d KiB", errMore, limit>>10)
	}
	return data, err
}

// checked returns what load has read, nil and a problem where that is not all of it.
func (r *Reader) checked(name string, at report.Pos, hint string, data []byte, err error) []byte {
	if err == nil {
		return data
	}
	p := report.Problem{At: at, Path: shape.JoinPath(r.Path), Severity: report.Error, Rule: "file"}
	if errors.Is(err, fs.ErrNotExist) {
		p.Hint = hint
	}
	if at.Src == nil {
		p.File = name
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	} else if errors.Is(err, errMore) {
		p.Rule = "too-large"
	}
	p.Message = fmt.Sprintf("read %s: %v", name, err)
	r.Report.Add(p)
	return nil
}

// read takes a file named on the command line or by a document at at.
func (r *Reader) read(name string, at report.Pos, valuesOnly bool) {
	if slices.Contains(r.open, name) {
		r.Errorf(at, "file", "", "%s names itself", name)
		return
	}
	if len(r.open) > maxDepth {
		r.Errorf(at, "file", "", "files name files more than %d deep", maxDepth)
		return
	}
	r.open = append(r.open, name)
	defer func() { r.open = r.open[:len(r.open)-1] }()
	if known, ok := r.fsys.(parsed); ok {
		if src, docs := known.Parsed(name); src != nil {
			r.documents(src, docs, valuesOnly)
			return
		}
	}
	data := r.Named(name, at, inventory.MaxFile, "")
	if data == nil {
		return
	}
	if bytes.HasPrefix(bytes.TrimLeft(data[:min(len(data), 512)], " \t\r\n"), []byte("{")) {
		if nodes, ok := inventory.ReadKube(r.Checker, name, data); ok {
			r.Nodes = append(r.Nodes, nodes...)
			return
		}
	}
	src := &report.Source{Name: name, Data: data}
	if len(data) > tree.MaxFile {
		r.Errorf(report.Pos{Src: src, Line: 1, Col: 1}, "too-large", "split it into several files",
			"the file is larger than %d MiB", tree.MaxFile>>20)
		return
	}
	if !valuesOnly && r.longList(src, data) {
		return
	}
	r.documents(src, tree.Parse(src, data, r.Report), valuesOnly)
}

// parsed is implemented by file systems that have files as trees, of which their maker
// has said what is wrong; nil of all others.
type parsed interface {
	Parsed(name string) (*report.Source, []*tree.Value)
}

// documents takes those of one file.
func (r *Reader) documents(src *report.Source, docs []*tree.Value, valuesOnly bool) {
	found := false
	for _, doc := range docs {
		if doc.Kind != tree.Null {
			found = true
			r.one(src, doc, valuesOnly)
		}
	}
	r.Refuse(!found && r.Report.Err() == nil, report.Pos{Src: src, Line: 1, Col: 1}, "form", formHint, "the file is empty")
}

// longList reads a file that has a long list of nodes and nothing else, a part at a time.
// One with a fault is left to be read as a whole, which says all that is to be said.
func (r *Reader) longList(src *report.Source, data []byte) bool {
	c := &shape.Checker{Report: &report.Report{}}
	entries, ok := tree.Entries(src, data, "nodes", c.Report)
	if !ok {
		return false
	}
	nodes := make([]inventory.NodeDoc, 0, 1024)
	for e := range entries {
		if e.Kind != tree.Mapping {
			return false
		}
		var n inventory.NodeDoc
		if c.Decode(e, &n); len(c.Report.Problems) > 0 {
			return false
		}
		nodes = append(nodes, n)
	}
	if len(c.Report.Problems) > 0 {
		return false
	}
	r.Nodes = append(r.Nodes, nodes...)
	return true
}

const formHint = "a file holds a Site (apiVersion, kind: Site), Divingbell values (conf:), an Armada chart (data.values, spec.values), " +
	"nodes (nodes:) or, by its kind, a part of a site"

// one identifies a document and merges it.
func (r *Reader) one(src *report.Source, doc *tree.Value, valuesOnly bool) {
	if doc.Kind == tree.Sequence && !valuesOnly {
		r.Nodes = append(r.Nodes, shape.Read[[]inventory.NodeDoc](r.Checker, doc)...)
		return
	}
	if doc.Kind != tree.Mapping {
		r.Errorf(doc.At, "form", formHint, "%s is not a configuration", doc.Kind)
		return
	}
	api := doc.Get("apiVersion")
	switch {
	case api != nil && strings.HasPrefix(api.Text, "caisson.dev/") || doc.Get("kind") != nil && doc.Get("kind").Text == siteKind:
		if valuesOnly {
			r.Errorf(doc.At, "form", "name it on the command line instead", "a Site cannot be used as values")
			return
		}
		r.kind(src, doc)
	case doc.Get("data") != nil && doc.Get("data").Get("values") != nil:
		src.Lenient = true
		r.armada(doc, doc.Get("data"))
	case api != nil && strings.HasPrefix(api.Text, "armada.airshipit.org/") && doc.Get("spec") != nil && doc.Get("spec").Get("values") != nil:
		src.Lenient = true
		r.armada(doc, doc.Get("spec"))
	case doc.Get("schema") != nil && strings.Contains(doc.Get("schema").Text, "/"):
		r.Notef(doc.At, "form", "", "the document of schema %s is not used", doc.Get("schema").Text)
	case slices.ContainsFunc([]string{"conf", "manifests", "labels", "images"}, func(k string) bool { return doc.Get(k) != nil }):
		src.Lenient = true
		r.values(doc)
	case doc.Get("nodes") != nil && !valuesOnly:
		r.Nodes = append(r.Nodes, shape.Read[inventory.Doc](r.Checker, doc).Nodes...)
	default:
		hint := formHint
		for _, f := range doc.Fields {
			if slices.Contains(module.Names(), f.Key) {
				hint = "put it below conf:"
			}
		}
		r.Errorf(doc.At, "form", hint, "unknown kind of document")
	}
}

// kind reads one of caisson's own documents. What is of no kind is taken for a
// Site, which says what it lacks.
func (r *Reader) kind(src *report.Source, doc *tree.Value) {
	k := doc.Get("kind")
	if k == nil || k.Kind != tree.Scalar || k.Text == siteKind {
		r.siteDocument(src, doc)
		return
	}
	known := []string{siteKind}
	for _, d := range kinds {
		if d.Kind() == k.Text {
			d.add(r, doc)
			r.parts = true
			return
		}
		known = append(known, d.Kind())
	}
	hint := report.DidYouMean(k.Text, known)
	if k.Text == "Service" { // a kind of Kubernetes
		hint = "kind Service is called NodeService"
	}
	r.In("kind", func() {
		r.Errorf(k.At, "enum", hint, "%q is not one of %s", k.Text, strings.Join(known, ", "))
	})
}

// siteDocument adds a Site: the files it names first, so that it has the last word.
func (r *Reader) siteDocument(src *report.Source, doc *tree.Value) {
	doc = r.belowAppended(doc)
	d := shape.Read[Site](r.Checker, doc)
	r.Site = true
	r.include(d.Include)
	r.Dir = path.Dir(src.Name) // of the Site that includes, not of what it includes
	for i, name := range d.Values.List {
		r.In("values", func() { r.read(Beside(d.Values.Each[i], name), d.Values.Each[i], true) })
	}
	r.Nodes = append(r.Nodes, d.Nodes...)
	for i, source := range d.Inventory {
		if source.Cluster != nil {
			r.Within([]string{"inventory", shape.Nth(i), "cluster"}, func() { r.members(source.Cluster) })
			continue
		}
		r.In("inventory", func() { r.read(Beside(source.File.At, source.File.S), source.File.At, false) })
	}
	r.merge(doc.Without("nodes").Without("inventory").Without("values").Without("include"))
}

// members adds Nodes of the cluster.
func (r *Reader) members(d *inventory.ClusterDoc) {
	if r.Cluster == nil || r.Cluster.Nodes == nil {
		r.Errorf(d.At, "no-cluster", "--from-cluster has kubectl read them; 'kubectl get nodes -o json' makes a file of them",
			"the site is not read from a cluster, and has no Nodes")
		return
	}
	nodes, err := r.Cluster.Nodes()
	if err != nil {
		r.Errorf(d.At, "no-cluster", "", "read the cluster's Nodes: %v", err)
		return
	}
	r.Claims = append(r.Claims, d.Select(r.Checker, nodes)...)
}

// armada adds the values of a chart, a document or an object of Kubernetes, as they stand:
// what a site's own tooling would still put into them is missing.
func (r *Reader) armada(doc, chart *tree.Value) {
	if m := doc.Get("metadata"); m != nil {
		if s := m.Get("substitutions"); s != nil && len(s.List) > 0 {
			r.Within([]string{"metadata", "substitutions"}, func() {
				r.Warnf(s.At, "armada", "render the documents first",
					"%d substitutions are not made: secrets and addresses may be missing", len(s.List))
			})
		}
		if l := m.Get("layeringDefinition"); l != nil && l.Get("abstract") != nil && l.Get("abstract").Text == "true" {
			r.Warnf(l.At, "armada", "render the documents first", "the document is abstract: others are meant to be laid over it")
		}
	}
	r.values(chart.Get("values"))
}

// values adds Helm values.
func (r *Reader) values(doc *tree.Value) {
	if !r.Want(doc, tree.Mapping) {
		return
	}
	var d Values
	r.Decode(doc, &d)
	r.merge(&tree.Value{Kind: tree.Mapping, At: doc.At, Fields: slices.DeleteFunc(slices.Clone(doc.Fields), func(f tree.Field) bool {
		return f.Key != "conf" && f.Key != "manifests" && f.Key != "labels"
	})})
}

// merge lays a document over what was read before, with the keys of both in
// their canonical spelling: two spellings of one key must meet.
func (r *Reader) merge(doc *tree.Value) {
	if conf := doc.Get("conf"); conf != nil && conf.Kind == tree.Mapping {
		doc = doc.With("conf", r.normalConf(conf))
	}
	if r.Tree == nil {
		r.Tree = doc
		return
	}
	r.Tree = tree.MergeFiles(r.Tree, doc, func(base, over *tree.Value) {
		switch {
		case over.Append:
			r.Errorf(over.At, "append", "", "nothing but a list can be appended to")
		// Divingbell's files are known for it
		case len(base.List) > 0 && over.At.Src != base.At.Src && over.At.Src != nil && !over.At.Src.Lenient:
			r.Notef(over.At, "replaced", "begin the key with + to keep both", "the list replaces the one at %s", base.At)
		}
	})
}

// kind is a kind of document that may stand beside a Site.
type kind struct {
	shape.Document
	add func(*Reader, *tree.Value) // reads one
}

// kinds are the documents that may stand beside a Site, each with where the reader
// collects it. What a kind is called its type says; what it means its package checks.
var kinds = []kind{
	now(func(r *Reader) *[]maintenance.WindowDoc { return &r.Maintenance.Windows }),
	now(func(r *Reader) *[]maintenance.NodeSetDoc { return &r.Maintenance.Sets }),
	later(func(r *Reader) *[]shape.Raw[maintenance.NodeMaintenanceDoc] { return &r.Maintenance.Nodes }),
	later(func(r *Reader) *[]shape.Raw[maintenance.TemplateDoc] { return &r.Maintenance.Templates }),
	now(func(r *Reader) *[]waves.RolloutDoc { return &r.Rollouts }),
	now(func(r *Reader) *[]service.ServiceDoc { return &r.Services }),
}

var siteKind = shape.Kind[Site]()

// now is a kind that is decoded when its document is found.
func now[T any](list func(*Reader) *[]T) kind { return collect[T](list) }

// later is a kind that its package decodes when it knows all documents.
func later[T any](list func(*Reader) *[]shape.Raw[T]) kind { return collect[T](list) }

func collect[Doc, T any](list func(*Reader) *[]T) kind {
	return kind{shape.Document{Type: reflect.TypeFor[Doc](), Whole: true}, func(r *Reader, v *tree.Value) {
		*list(r) = append(*list(r), shape.Read[T](r.Checker, v))
	}}
}

// schema is a document that has a JSON Schema, and those that may stand in the same file.
type schema struct {
	name, title string
	documents   []shape.Document
}

var schemas = makeSchemas()

func makeSchemas() []schema {
	site := schema{"site", "caisson Site", []shape.Document{{Type: reflect.TypeFor[Site]()}}}
	out := []schema{site,
		{"values", "Divingbell values", []shape.Document{{Type: reflect.TypeFor[Values]()}}},
		{"inventory", "caisson inventory", []shape.Document{{Type: reflect.TypeFor[inventory.Doc]()}}}}
	for _, k := range kinds {
		out[0].documents = append(out[0].documents, k.Document)
		out = append(out, schema{strings.ToLower(k.Kind()), "caisson " + k.Kind(), []shape.Document{k.Document}})
	}
	return out
}

// SchemaNames lists the documents that have a JSON Schema.
func SchemaNames() []string {
	return plain.Each(schemas, func(s schema) string { return s.name })
}

// Schema returns the JSON Schema (draft 2020-12) of a document, for editors. It
// is generated from the types that files are decoded into. It knows shapes, not
// rules: what it refuses the parser refuses, not the other way round.
func Schema(name string) ([]byte, error) {
	for _, s := range schemas {
		if s.name == name {
			return shape.Schema("https://caisson.dev/schema/"+name+".schema.json", s.title, name == "values", s.documents[0], s.documents[1:]...)
		}
	}
	return nil, fmt.Errorf("no schema is called %q", name)
}
