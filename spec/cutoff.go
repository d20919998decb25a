// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// cutter finds and drops the settings of a kind of items that can cut a node off: a publisher who
// gets one wrong can neither log in nor publish something better.
type cutter struct {
	can  func(*Items) map[string]any // by key; nil where nothing can
	drop func(*Items)                // takes the same out of the items
	copy func(to, from *Items)       // puts the same of others beside them

	later bool // what it is for may read it at its next start alone
}

func cuts[T any](list func(*Items) *[]T, can func(T) (key string, cuts bool)) cutter {
	return cutter{
		can: func(i *Items) map[string]any {
			found := map[string]any{}
			for _, v := range *list(i) {
				if key, ok := can(v); ok {
					found[key] = v
				}
			}
			return found
		},
		drop: func(i *Items) {
			*list(i) = slices.DeleteFunc(slices.Clone(*list(i)), func(v T) bool { _, ok := can(v); return ok })
		},
		copy: func(to, from *Items) {
			*list(to) = append(*list(to), slices.DeleteFunc(slices.Clone(*list(from)), func(v T) bool { _, ok := can(v); return !ok })...)
		},
	}
}

// atStart is a cutter of what may be read at the next start of its program alone.
func (c cutter) atStart() cutter {
	c.later = true
	return c
}

// cutters are the kinds that can cut a node off.
func cutters() []kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.can == nil })
}

// CutsOff returns what differs between two lists of items and can cut the node off, as
// "kind key", sorted.
func CutsOff(from, to *Items) []string { return differing(cutters(), from, to) }

// Unread returns the part of that which a change of a running node does not try: the program that
// it is for reads it when it starts.
func Unread(from, to *Items) []string {
	return differing(slices.DeleteFunc(cutters(), func(k kind) bool { return !k.later }), from, to)
}

func differing(cutters []kind, from, to *Items) (list []string) {
	for _, c := range cutters {
		a, b := c.can(from), c.can(to)
		keys := map[string]any{}
		maps.Copy(keys, a)
		maps.Copy(keys, b)
		for key := range keys {
			if !reflect.DeepEqual(a[key], b[key]) {
				list = append(list, strings.TrimSpace(c.name+" "+key)) // modules are one
			}
		}
	}
	slices.Sort(list)
	return list
}

// Harmless returns the items without what can cut the node off.
func (i Items) Harmless() Items {
	for _, c := range cutters() {
		c.drop(&i)
	}
	return i
}

// Keeping returns the items with what can cut the node off as others have it.
func (i Items) Keeping(others Items) Items { return i.keeping(others, cutters()) }

// KeepingEarly is Keeping of the kinds that are set before services start.
func (i Items) KeepingEarly(others Items) Items {
	return i.keeping(others, slices.DeleteFunc(cutters(), func(k kind) bool { return k.early == nil }))
}

func (i Items) keeping(others Items, cutters []kind) Items {
	for _, c := range cutters {
		c.drop(&i)
		c.copy(&i, &others)
	}
	return i
}
