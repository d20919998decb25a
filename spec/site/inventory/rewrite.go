// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// ErrNoRow is returned for a node whose row is not YAML that a person wrote.
var ErrNoRow = errors.New("its row is not in a file of YAML")

// Rematch returns the file that a node is written in with other identifiers for it; all else stays
// as it is, byte by byte. Aliases of what it changes change, too: who writes the text reads it first.
func Rematch(n Node, to spec.Match) ([]byte, error) {
	src := n.at.Src
	if src == nil || src.Data == nil {
		return nil, ErrNoRow
	}
	t := text{src.Data}
	row := rowAt(&tree.Value{List: tree.Parse(src, src.Data, &report.Report{})}, n.at)
	if row == nil {
		return nil, ErrNoRow
	}
	if m := row.Get("match"); m != nil && m.Kind == tree.Mapping && m.At.Src == src {
		from, text := t.offset(m.At), MatchText(to)
		if t.data[from] != '{' { // a block stays one
			text = strings.Replace(strings.Trim(text, "{}"), ", uuids", "\n"+strings.Repeat(" ", int(m.At.Col)-1)+"uuids", 1)
		}
		return t.put(from, t.endOfLast(m), text), nil
	}
	after := t.endOf(t.offset(n.at))
	if t.data[t.offset(row.At)] == '{' {
		return t.put(after, after, ", match: "+MatchText(to)), nil
	}
	if line := bytes.IndexByte(t.data[after:], '\n'); line >= 0 { // behind a comment on that line
		after += line
	} else {
		after = len(t.data)
	}
	return t.put(after, after, "\n"+strings.Repeat(" ", int(row.At.Col)-1)+"match: "+MatchText(to)), nil
}

// MatchText writes identifiers as a site has them.
func MatchText(m spec.Match) string {
	var parts []string
	for _, list := range []struct {
		key string
		ids []string
	}{{"macs", m.MACs}, {"uuids", m.UUIDs}} {
		if len(list.ids) > 0 {
			parts = append(parts, list.key+`: ["`+strings.Join(list.ids, `", "`)+`"]`)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// rowAt returns the map whose name is written at a place.
func rowAt(v *tree.Value, at report.Pos) *tree.Value {
	if name := v.Get("name"); name != nil && name.At.Line == at.Line && name.At.Col == at.Col {
		return v
	}
	for _, e := range append(plain.Each(v.Fields, func(f tree.Field) *tree.Value { return f.Val }), v.List...) {
		if row := rowAt(e, at); row != nil {
			return row
		}
	}
	return nil
}

// text finds where values of YAML begin and end.
type text struct{ data []byte }

// offset returns where a place is; columns count signs, not bytes.
func (t text) offset(at report.Pos) int {
	i := 0
	for line := int32(1); line < at.Line; line++ {
		i += bytes.IndexByte(t.data[i:], '\n') + 1
	}
	for col := int32(1); col < at.Col && i < len(t.data); col++ {
		_, size := utf8.DecodeRune(t.data[i:])
		i += size
	}
	return min(i, len(t.data)-1)
}

// endOfLast returns where the last value below one ends.
func (t text) endOfLast(v *tree.Value) int {
	begins := t.offset(v.At)
	switch {
	case t.data[begins] == '{' || t.data[begins] == '[':
	case v.Kind == tree.Mapping && len(v.Fields) > 0:
		return t.endOfLast(v.Fields[len(v.Fields)-1].Val)
	case v.Kind == tree.Sequence && len(v.List) > 0:
		return t.endOfLast(v.List[len(v.List)-1])
	}
	return t.endOf(begins)
}

// endOf returns where the value ends that begins at a place: at its bracket, its quote, or before
// what ends a plain one.
func (t text) endOf(from int) int {
	depth := 0
	for i := from; i < len(t.data); i++ {
		switch c := t.data[i]; {
		case (c == '"' || c == '\'') && (depth > 0 || i == from):
			for i++; i < len(t.data) && t.data[i] != c; i++ {
				if c == '"' && t.data[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(t.data))
			}
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']') && depth > 0:
			if depth--; depth == 0 {
				return i + 1
			}
		case c == '#' && depth > 0 && strings.IndexByte(" \t\n", t.data[i-1]) >= 0:
			for i+1 < len(t.data) && t.data[i+1] != '\n' {
				i++
			}
		case depth == 0 && strings.IndexByte(" \t\r\n,}]", c) >= 0: // names and identifiers have none of these
			return i
		}
	}
	return len(t.data)
}

// put returns the text with another one between two places.
func (t text) put(from, to int, other string) []byte {
	out := append([]byte{}, t.data[:from]...)
	out = append(out, other...)
	return append(out, t.data[to:]...)
}
