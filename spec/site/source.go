// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
)

// reader collects the documents of all files into one tree.
type reader struct {
	*checker
	fsys  fs.FS
	tree  *value // merged documents without nodes
	nodes []nodeDoc
	site  bool // a Site document was among them
	dir   string
	open  []string // files being read, to find a file that names itself
}

// readFile returns the content of a named file, at most limit bytes of it.
func (r *reader) readFile(name string, at report.Pos, limit int64) []byte {
	fail := func(rule, format string, args ...any) []byte {
		p := report.Problem{At: at, Path: joinPath(r.path), Severity: report.Error, Rule: rule, Message: fmt.Sprintf(format, args...)}
		if at.Src == nil {
			p.File = name
		}
		r.report.Add(p)
		return nil
	}
	f, err := r.fsys.Open(name)
	var pe *fs.PathError
	if err != nil {
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return fail("file", "read %s: %v", name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return fail("file", "read %s: %v", name, err)
	}
	if int64(len(data)) > limit {
		return fail("too-large", "read %s: more than %d MiB", name, limit>>20)
	}
	return data
}

// read takes a file named on the command line or by a document at at.
func (r *reader) read(name string, at report.Pos, valuesOnly bool) {
	if slices.Contains(r.open, name) || len(r.open) > 8 {
		r.errorf(at, "file", "", "%s names itself", name)
		return
	}
	r.open = append(r.open, name)
	defer func() { r.open = r.open[:len(r.open)-1] }()
	data := r.readFile(name, at, maxInventory)
	if data == nil {
		return
	}
	if bytes.HasPrefix(bytes.TrimLeft(data[:min(len(data), 512)], " \t\r\n"), []byte("{")) {
		if nodes, ok := readKube(r.checker, name, data); ok {
			r.nodes = append(r.nodes, nodes...)
			return
		}
	}
	src := &report.Source{Name: name, Data: data}
	if len(data) > maxFile {
		r.errorf(report.Pos{Src: src, Line: 1, Col: 1}, "too-large", "split it into several files", "the file is larger than %d MiB", maxFile>>20)
		return
	}
	docs := parseYAML(src, data, r.report)
	found := false
	for _, doc := range docs {
		if doc.kind != null {
			found = true
			r.document(src, doc, valuesOnly)
		}
	}
	if !found && r.report.Err() == nil {
		r.errorf(report.Pos{Src: src, Line: 1, Col: 1}, "form", formHint, "the file is empty")
	}
}

const formHint = "a file holds a Site (apiVersion, kind: Site), Divingbell values (conf:), an Armada chart (data.values) or nodes (nodes:)"

// document recognises one document and adds it.
func (r *reader) document(src *report.Source, doc *value, valuesOnly bool) {
	if doc.kind == sequence && !valuesOnly {
		r.inventoryList(doc)
		return
	}
	if doc.kind != mapping {
		r.errorf(doc.at, "form", formHint, "%s is not a configuration", doc.kind)
		return
	}
	api := doc.get("apiVersion")
	switch {
	case api != nil && strings.HasPrefix(api.text, "caisson.dev/") || doc.get("kind") != nil && doc.get("kind").text == "Site":
		if valuesOnly {
			r.errorf(doc.at, "form", "name it on the command line instead", "a Site cannot be used as values")
			return
		}
		r.siteDocument(src, doc)
	case doc.get("data") != nil && doc.get("data").get("values") != nil:
		src.Lenient = true
		r.armada(doc)
	case doc.get("schema") != nil && strings.Contains(doc.get("schema").text, "/"):
		r.notef(doc.at, "form", "", "the document of schema %s is not used", doc.get("schema").text)
	case slices.ContainsFunc([]string{"conf", "manifests", "labels", "images"}, func(k string) bool { return doc.get(k) != nil }):
		src.Lenient = true
		r.values(doc)
	case doc.get("nodes") != nil && !valuesOnly:
		r.inventoryMap(doc)
	default:
		hint := formHint
		for _, f := range doc.fields {
			if slices.Contains(moduleNames(), f.key) {
				hint = "put it below conf:"
			}
		}
		r.errorf(doc.at, "form", hint, "the document is none that caisson knows")
	}
}

// siteDocument adds a Site: the files it names first, so that it has the last word.
func (r *reader) siteDocument(src *report.Source, doc *value) {
	var d document
	r.decode(doc, &d)
	r.dir = path.Dir(src.Name)
	r.site = true
	for _, name := range d.Values.List {
		r.in("values", func() { r.read(path.Join(r.dir, name), d.Values.At, true) })
	}
	r.nodes = append(r.nodes, d.Nodes...)
	for _, name := range d.Inventory.List {
		r.in("inventory", func() { r.read(path.Join(r.dir, name), d.Inventory.At, false) })
	}
	r.merge(doc.without("nodes").without("inventory").without("values"))
}

// armada adds a chart's values, as they stand: what a site's own tooling would
// still put into them is missing.
func (r *reader) armada(doc *value) {
	if m := doc.get("metadata"); m != nil {
		if s := m.get("substitutions"); s != nil && len(s.list) > 0 {
			r.within([]string{"metadata", "substitutions"}, func() {
				r.warnf(s.at, "armada", "render the documents first", "%d substitutions are not made: secrets and addresses may be missing", len(s.list))
			})
		}
		if l := m.get("layeringDefinition"); l != nil && l.get("abstract") != nil && l.get("abstract").text == "true" {
			r.warnf(l.at, "armada", "render the documents first", "the document is abstract: others are meant to be laid over it")
		}
	}
	r.values(doc.get("data").get("values"))
}

// values adds Helm values.
func (r *reader) values(doc *value) {
	if !r.want(doc, mapping) {
		return
	}
	var d valuesDoc
	r.decode(doc, &d)
	kept := &value{kind: mapping, at: doc.at}
	for _, f := range doc.fields {
		if f.key == "conf" || f.key == "manifests" || f.key == "labels" {
			kept.fields = append(kept.fields, f)
		}
	}
	r.merge(kept)
}

// merge lays a document over what was read before, with the keys of both in
// their canonical spelling: two spellings of one key must meet.
func (r *reader) merge(doc *value) {
	if conf := doc.get("conf"); conf != nil && conf.kind == mapping {
		doc = doc.with("conf", r.normalConf(conf))
	}
	if r.tree == nil {
		r.tree = doc
		return
	}
	r.tree = mergeFiles(r.tree, doc)
}

// normalConf brings conf and every override's conf to canonical keys.
func (r *reader) normalConf(conf *value) *value {
	r.push("conf")
	defer r.pop()
	if perms := conf.get("perms"); perms != nil {
		conf = olderPerms(r.checker, conf, perms)
	}
	for _, m := range modules {
		if v := conf.get(m.name); v != nil && m.normal != nil {
			r.in(m.name, func() { conf = conf.with(m.name, m.normal(r.checker, v)) })
		}
	}
	over := conf.get("overrides")
	if over == nil || over.kind != mapping {
		return conf
	}
	for _, m := range modules {
		stanza := over.get(m.stanza)
		if stanza == nil || stanza.kind != mapping || m.normal == nil {
			continue
		}
		for _, key := range []string{"hosts", "labels"} {
			list := stanza.get(key)
			if list == nil || list.kind != sequence {
				continue
			}
			out := *list
			out.list = make([]*value, len(list.list))
			for i, e := range list.list {
				out.list[i] = e
				if body := e.get("conf"); body != nil && body.kind == mapping {
					r.within([]string{"overrides", m.stanza, key, nth(i), "conf"}, func() {
						if perms := body.get("perms"); perms != nil && m.name == "perm" {
							body = olderPerms(r.checker, body, perms)
						}
						if v := body.get(m.name); v != nil {
							r.in(m.name, func() { body = body.with(m.name, m.normal(r.checker, v)) })
						}
					})
					out.list[i] = e.with("conf", body)
				}
			}
			stanza = stanza.with(key, &out)
		}
		over = over.with(m.stanza, stanza)
	}
	return conf.with("overrides", over)
}

// readCAs replaces the files that machine names by their content, once, so that
// nothing later needs the file system.
func (r *reader) readCAs(v *value) *value {
	cas := v.get("cas")
	if cas == nil || cas.kind != sequence {
		return v
	}
	out := *cas
	out.list = make([]*value, len(cas.list))
	for i, e := range cas.list {
		out.list[i] = e
		if e.kind != scalar {
			continue
		}
		text := e.text
		if !strings.Contains(text, "-----BEGIN") {
			text = string(r.readFile(path.Join(r.dir, e.text), e.at, 1<<20))
			if text == "" {
				continue
			}
		}
		if err := parseCAs(text); err != "" {
			r.errorf(e.at, "certificate", "", "%s", err)
		}
		read := *e
		read.text = text
		out.list[i] = &read
	}
	return v.with("cas", &out)
}

func (r *reader) inventoryList(doc *value) {
	var nodes []nodeDoc
	r.decode(doc, &nodes)
	r.nodes = append(r.nodes, nodes...)
}

func (r *reader) inventoryMap(doc *value) {
	var d inventoryDoc
	r.decode(doc, &d)
	r.nodes = append(r.nodes, d.Nodes...)
}
