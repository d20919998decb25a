// SPDX-License-Identifier: Apache-2.0

package site

// mergeOverride lays an override over a base as helm-toolkit does: maps merge
// key by key, everything else replaces, and a map cannot replace a value or a
// list. dropped is told of each such map. Nothing is copied that is not changed.
func mergeOverride(base, over *value, dropped func(*value)) *value {
	switch {
	case over == nil:
		return base
	case base == nil || base.kind == null || over.kind != mapping:
		return over
	case base.kind != mapping:
		dropped(over)
		return base
	}
	return mergeFields(base, over, func(b, o *value) *value { return mergeOverride(b, o, dropped) })
}

// mergeFiles lays a later file over an earlier one as helm -f does: maps merge,
// everything else replaces, a null takes the key away.
func mergeFiles(base, over *value) *value {
	if base == nil || base.kind != mapping || over.kind != mapping {
		return over
	}
	out := mergeFields(base, over, mergeFiles)
	kept := out.fields[:0:0]
	for _, f := range out.fields {
		if f.val.kind != null || base.get(f.key) == nil {
			kept = append(kept, f)
		}
	}
	out.fields = kept
	return out
}

// mergeFields returns a new map with the keys of both, base's first.
func mergeFields(base, over *value, both func(b, o *value) *value) *value {
	out := &value{kind: mapping, at: over.at, fields: make([]field, len(base.fields), len(base.fields)+len(over.fields))}
	copy(out.fields, base.fields)
	find := index(base)
	for _, f := range over.fields {
		if i := find(f.key); i >= 0 {
			merged := both(base.fields[i].val, f.val)
			if merged != base.fields[i].val {
				out.fields[i] = field{f.key, f.at, merged}
			}
			continue
		}
		out.fields = append(out.fields, f)
	}
	return out
}

// index returns a look-up of a map's fields, with an index where that pays.
func index(v *value) func(key string) int {
	if len(v.fields) > 16 {
		byKey := make(map[string]int, len(v.fields))
		for i, f := range v.fields {
			byKey[f.key] = i
		}
		return func(key string) int {
			if i, ok := byKey[key]; ok {
				return i
			}
			return -1
		}
	}
	return func(key string) int {
		for i := range v.fields {
			if v.fields[i].key == key {
				return i
			}
		}
		return -1
	}
}
