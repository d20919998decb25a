// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

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
		out.Fields = make([]tree.Field, len(v.Fields))
		for i, f := range v.Fields {
			if name := strings.TrimPrefix(f.Key, "+"); name != f.Key && name != "" && f.Val.Kind == tree.Sequence {
				if v.Get(name) != nil {
					r.Errorf(f.At, "append", "keep one of the two", "%s and %s are both given", name, f.Key)
				}
				list := *r.appended(f.Val)
				list.Append = true
				f.Key, f.Val = name, &list
			} else {
				r.In(f.Key, func() { f.Val = r.appended(f.Val) })
			}
			out.Fields[i] = f
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
