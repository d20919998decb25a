// SPDX-License-Identifier: Apache-2.0

package tree

import "slices"

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
