// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"iter"
	"regexp"
	"slices"

	"github.com/caisson-os/caisson/spec/site/report"
)

// MergeOverride lays an override over a base as helm-toolkit does: maps merge
// key by key, everything else replaces, and a map cannot replace a value or a
// list. dropped is called with each such map, and with each list that was to be
// appended to what is not a list. Nothing is copied that is not changed.
func MergeOverride(base, over *Value, dropped func(*Value)) *Value {
	switch {
	case over == nil:
		return base
	case base == nil || base.Kind == Null:
		return over
	case over.Append:
		return join(base, over, dropped)
	case over.Kind != Mapping:
		return over
	case base.Kind != Mapping:
		dropped(over)
		return base
	}
	return mergeFields(base, over, func(b, o *Value) *Value { return MergeOverride(b, o, dropped) })
}

// MergeFiles lays a later file over an earlier one as helm -f does: maps merge,
// everything else replaces, a null takes the key away. lost is called with each
// list that takes the place of another, and with each that was to be appended to
// what is not a list, and so is left out.
func MergeFiles(base, over *Value, lost func(base, over *Value)) *Value {
	if over.Append && base != nil && base.Kind != Null {
		return join(base, over, func(over *Value) { lost(base, over) })
	}
	if base != nil && base.Kind == Sequence && over.Kind == Sequence {
		lost(base, over)
	}
	if base == nil || base.Kind != Mapping || over.Kind != Mapping {
		return over
	}
	out := mergeFields(base, over, func(b, o *Value) *Value { return MergeFiles(b, o, lost) })
	kept := out.Fields[:0:0]
	for _, f := range out.Fields {
		if f.Val.Kind != Null || base.Get(f.Key) == nil {
			kept = append(kept, f)
		}
	}
	out.Fields = kept
	return out
}

// join lays a list after another. The entries stay the values that they were, so
// that each can be told from where it came.
func join(base, over *Value, dropped func(*Value)) *Value {
	if base.Kind != Sequence {
		dropped(over)
		return base
	}
	out := *over
	out.Append = base.Append
	out.List = slices.Concat(base.List, over.List)
	return &out
}

// mergeFields returns a new map with the keys of both, base's first.
func mergeFields(base, over *Value, both func(b, o *Value) *Value) *Value {
	out := &Value{Kind: Mapping, At: over.At, Fields: make([]Field, len(base.Fields), len(base.Fields)+len(over.Fields))}
	copy(out.Fields, base.Fields)
	find := index(base)
	for _, f := range over.Fields {
		if i := find(f.Key); i >= 0 {
			merged := both(base.Fields[i].Val, f.Val)
			if merged != base.Fields[i].Val {
				out.Fields[i] = Field{f.Key, f.At, merged}
			}
			continue
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}

// index returns a look-up of a map's fields, with an index where that pays.
func index(v *Value) func(key string) int {
	if len(v.Fields) > 16 {
		byKey := make(map[string]int, len(v.Fields))
		for i, f := range v.Fields {
			byKey[f.Key] = i
		}
		return func(key string) int {
			if i, ok := byKey[key]; ok {
				return i
			}
			return -1
		}
	}
	return func(key string) int {
		for i := range v.Fields {
			if v.Fields[i].Key == key {
				return i
			}
		}
		return -1
	}
}

// pieceSize is how much of a list is parsed at a time: the library takes some forty times
// as much memory.
const pieceSize = 256 << 10

// listKey is a line with nothing but a key.
var listKey = regexp.MustCompile(`^([a-z]+):(?: +#.*| *)$`)

// Entries parses a file that is one long list, below the key or without it, and gives its
// entries in turn: a tree of all of it would take most of the memory of a large site. False
// where the file is anything else, or short. Faults go to r; as they may be those of a list
// that was taken apart, a caller that meets one reads the whole file with [Parse].
func Entries(src *report.Source, data []byte, key string, r *report.Report) (entries iter.Seq[*Value], ok bool) {
	pieces := split(data, key)
	if len(pieces) < 2 || tooManyValues(data) {
		return nil, false
	}
	return func(yield func(*Value) bool) {
		for _, p := range pieces {
			for _, doc := range parse(src, p.data, p.line, r) {
				for _, e := range doc.List {
					if !yield(e) {
						return
					}
				}
			}
		}
	}, true
}

// piece is entries of a list, and the number of lines before them.
type piece struct {
	data []byte
	line int
}

// split cuts a list at lines that begin an entry. It gives none where anything is written
// that might not mean the same in pieces: another key, a second document, an anchor, a
// text that begins further left than the entries.
func split(data []byte, key string) (pieces []piece) {
	if bytes.ContainsAny(data, "&*\t\r") {
		return nil
	}
	var start []byte // what the line of an entry begins with
	keyed, from, number := false, 0, 0
	for at := 0; at < len(data); number++ {
		end := at + bytes.IndexByte(data[at:], '\n') + 1
		if end == at {
			end = len(data)
		}
		line := bytes.TrimRight(data[at:end], "\n")
		text := bytes.TrimLeft(line, " ")
		switch {
		case len(text) == 0 || text[0] == '#':
		case start == nil && !keyed && string(line) == "---":
		case start == nil && !keyed && isKey(line, key):
			keyed = true
		case start == nil && bytes.HasPrefix(text, []byte("- ")):
			start = line[:len(line)-len(text)+2]
			pieces = append(pieces, piece{line: number})
			from = at
		case start == nil:
			return nil
		case bytes.HasPrefix(line, start):
			if at-from >= pieceSize {
				pieces[len(pieces)-1].data = data[from:at]
				pieces = append(pieces, piece{line: number})
				from = at
			}
		case len(line)-len(text) < len(start)-1:
			return nil
		}
		at = end
	}
	if len(pieces) > 0 {
		pieces[len(pieces)-1].data = data[from:]
	}
	return pieces
}

func isKey(line []byte, key string) bool {
	m := listKey.FindSubmatch(line)
	return m != nil && string(m[1]) == key
}
