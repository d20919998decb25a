// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// maxText bounds a file whose content becomes a value; the value's own rule may
// allow less.
const maxText = 1 << 20

// normalConf brings conf and every override's conf to canonical keys.
func (r *Reader) normalConf(conf *tree.Value) *tree.Value {
	r.Push("conf")
	defer r.Pop()
	if perms := conf.Get("perms"); perms != nil {
		conf = module.OlderPerms(r.Checker, conf, perms)
	}
	for _, m := range module.Conf() {
		conf = r.Below(conf, m.Name, func(v *tree.Value) *tree.Value { return r.canonical(m, v) })
	}
	over := conf.Get("overrides")
	if over == nil || over.Kind != tree.Mapping {
		return conf
	}
	for _, m := range module.Conf() {
		stanza := over.Get(m.Stanza())
		if stanza == nil || stanza.Kind != tree.Mapping || m.Normal == nil && m.Inline == nil {
			continue
		}
		for _, key := range []string{"hosts", "labels"} {
			if list := stanza.Get(key); list != nil && list.Kind == tree.Sequence {
				stanza = stanza.With(key, r.normalOverrides(m, key, list))
			}
		}
		over = over.With(m.Stanza(), stanza)
	}
	return conf.With("overrides", over)
}

// normalOverrides brings the conf of a module's overrides, of hosts or labels, to canonical keys.
func (r *Reader) normalOverrides(m *module.Module, key string, list *tree.Value) *tree.Value {
	out := *list
	out.List = slices.Clone(list.List)
	for i, e := range list.List {
		body := e.Get("conf")
		if body == nil || body.Kind != tree.Mapping {
			continue
		}
		r.Within([]string{"overrides", m.Stanza(), key, shape.Nth(i), "conf"}, func() {
			if perms := body.Get("perms"); perms != nil && m.Name == "perm" {
				body = module.OlderPerms(r.Checker, body, perms)
			}
			body = r.Below(body, m.Name, func(v *tree.Value) *tree.Value { return r.canonical(m, v) })
		})
		out.List[i] = e.With("conf", body)
	}
	return &out
}

// canonical returns a module's value with its keys in their canonical spelling and
// the files that it names read, once, so that nothing later needs the file system.
func (r *Reader) canonical(m *module.Module, v *tree.Value) *tree.Value {
	if m.Inline != nil {
		v = m.Inline(r.Checker, v, func(name string, at report.Pos) string {
			data := r.Named(Beside(at, name), at, maxText, "")
			if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
				r.Errorf(at, "text", "keep it in a package", "%s is not text", name)
				return ""
			}
			return string(data)
		})
	}
	if m.Normal != nil {
		v = m.Normal(r.Checker, v)
	}
	return v
}

// belowAppended is [Reader.appended] for what a Site's own keys hold.
func (r *Reader) belowAppended(doc *tree.Value) *tree.Value {
	out := *doc
	out.Fields = make([]tree.Field, len(doc.Fields))
	for i, f := range doc.Fields {
		r.In(f.Key, func() { f.Val = r.appended(f.Val) })
		out.Fields[i] = f
	}
	return &out
}

// appended returns a part of a Site in which a list that was written as "+NAME" is
// that of NAME, marked to be laid after the list that it meets. Entries of lists
// are wholes, but for those of overrides, whose conf is laid over another.
func (r *Reader) appended(v *tree.Value) *tree.Value {
	switch v.Kind {
	case tree.Mapping:
		out := *v
		out.Fields = make([]tree.Field, 0, len(v.Fields))
		for _, f := range v.Fields {
			if name := strings.TrimPrefix(f.Key, "+"); name != f.Key && name != "" && f.Val.Kind == tree.Sequence {
				if v.Get(name) != nil {
					r.Errorf(f.At, "append", "keep one of the two", "%s and %s are both given", name, f.Key)
					continue // a key stands once: places are looked up by it
				}
				list := *r.appended(f.Val)
				list.Append = true
				f.Key, f.Val = name, &list
			} else {
				r.In(f.Key, func() { f.Val = r.appended(f.Val) })
			}
			out.Fields = append(out.Fields, f)
		}
		return &out
	case tree.Sequence:
		out := *v
		out.List = make([]*tree.Value, len(v.List))
		for i, e := range v.List {
			if conf := e.Get("conf"); conf != nil && conf.Kind == tree.Mapping {
				r.Within([]string{shape.Nth(i), "conf"}, func() { e = e.With("conf", r.appended(conf)) })
			}
			out.List[i] = e
		}
		return &out
	}
	return v
}

var (
	helm    = regexp.MustCompile(`\{\{-?\s*(\.(Values|Release|Chart|Capabilities)\b|(include|tpl|template|required|toYaml)\s)`)
	unfiled = regexp.MustCompile(`^\s*\{\{.*\}\}\s*$`)
)

// words are the keys whose values programs read that have templates of their own.
var words = []string{"args", "argv", "command"}

// WarnOfTemplates reports values that a template engine was to fill in: nothing here
// evaluates templates, and a node would be given the braces.
func WarnOfTemplates(c *shape.Checker, v *tree.Value, key string) {
	switch {
	case v == nil:
	case v.Kind == tree.Scalar && strings.Contains(v.Text, "{{"):
		if helm.MatchString(v.Text) || unfiled.MatchString(v.Text) && !slices.Contains(words, key) {
			c.Warnf(v.At, "template", "render it first, as 'helm template' does: caisson evaluates no templates", "a template is left in the value")
		}
	default:
		for _, f := range v.Fields {
			c.In(f.Key, func() { WarnOfTemplates(c, f.Val, f.Key) })
		}
		for i, e := range v.List {
			if e.Kind != tree.Scalar || strings.Contains(e.Text, "{{") {
				c.In(shape.Nth(i), func() { WarnOfTemplates(c, e, key) })
			}
		}
	}
}
