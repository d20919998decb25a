// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Parts that their users know by name.
const (
	Layer   = "layer"   // comes first: settings may need what it has
	Network = "network" // says which addresses the node has
)

// ids are the keys by which an element of a list of items is told from others, by kind.
// The items of another kind are one part.
var ids = map[string][]string{"mounts": {"id"}, "swaps": {"device"}, "limits": {"id"}, "sysctl": {"key"},
	"sysfs": {"path"}, "ethtool": {"interface", "feature"},
	"files": {"path"}, "exec": {"name"}, "units": {"name"}, "nics": {"id"}, "passwords": {"user"}}

// same are keys of an overlay that are no part: what the node is, and what follows from the rest.
var same = []string{"apiVersion", "kind", "fleet", "node", "match", "variant", "needs"}

// tree is a part of a document, as JSON.
type tree = map[string]any

// partsOf returns an overlay as its parts: each setting by KIND/KEY, the rest by its key.
func partsOf(o *spec.Overlay) (map[string]any, error) {
	doc, err := decode(o)
	if err != nil {
		return nil, err
	}
	parts := map[string]any{}
	items, _ := doc["items"].(tree)
	delete(doc, "items")
	for key, v := range doc {
		if !slices.Contains(same, key) {
			parts[key] = v
		}
	}
	for kind, v := range items {
		list, ok := v.([]any)
		if !ok || ids[kind] == nil {
			parts[kind] = v
			continue
		}
		for _, element := range list {
			parts[nameOf(kind, element)] = element
		}
	}
	return parts, nil
}

func nameOf(kind string, element any) string {
	name := kind
	for _, id := range ids[kind] {
		text := fmt.Sprint(element.(tree)[id]) // elements of these kinds are objects
		if kind == "sysctl" {
			text = rules.SysctlName(text) // as a site has it
		}
		name += "/" + text
	}
	return name
}

func decode(o *spec.Overlay) (doc tree, err error) {
	data, err := spec.Encode(o)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return doc, d.Decode(&doc)
}

// Parts returns the parts in which two overlays differ: the layer, then what is not of one
// kind of items, then settings.
func Parts(good, bad *spec.Overlay) ([]string, error) {
	a, err := partsOf(good)
	if err != nil {
		return nil, err
	}
	b, err := partsOf(bad)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(a)
	maps.Copy(names, b)
	list := plain.Pick(slices.Sorted(maps.Keys(names)), func(name string) (string, bool) {
		return name, !reflect.DeepEqual(a[name], b[name])
	})
	rank := func(name string) int {
		switch {
		case name == Layer:
			return 0
		case strings.Contains(name, "/"):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y string) int { return rank(x) - rank(y) })
	return list, nil
}

// Mix returns the good overlay with some parts of the bad one.
func Mix(good, bad *spec.Overlay, parts []string) (*spec.Overlay, error) {
	a, err := decode(good)
	if err != nil {
		return nil, err
	}
	b, err := decode(bad)
	if err != nil {
		return nil, err
	}
	theirs, err := partsOf(bad)
	if err != nil {
		return nil, err
	}
	items, _ := a["items"].(tree)
	others, _ := b["items"].(tree)
	for _, part := range parts {
		kind, _, isItem := strings.Cut(part, "/")
		switch _, whole := others[kind]; {
		case isItem:
			items[kind] = replace(kind, part, items[kind], others[kind], theirs[part])
		case whole || items[kind] != nil:
			put(items, kind, theirs[part])
		default:
			put(a, part, theirs[part])
		}
		if part == Layer {
			put(a, "variant", b["variant"])
		}
	}
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	var o spec.Overlay
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	o.Needs = slices.Concat(good.Needs, bad.Needs)
	o.SetNeeds()
	return &o, nil
}

func put(doc tree, key string, v any) {
	if doc[key] = v; v == nil {
		delete(doc, key)
	}
}

// replace puts one element into a list, or takes it out where the bad overlay has none. The
// elements that the bad overlay has, too, are in its order, and before the others.
func replace(kind, part string, list, order, element any) []any {
	mine, _ := list.([]any)
	theirs, _ := order.([]any)
	mine = slices.DeleteFunc(slices.Clone(mine), func(e any) bool { return nameOf(kind, e) == part })
	if element != nil {
		mine = append(mine, element)
	}
	at := func(e any) int {
		if i := slices.IndexFunc(theirs, func(x any) bool { return nameOf(kind, x) == nameOf(kind, e) }); i >= 0 {
			return i
		}
		return len(theirs)
	}
	slices.SortStableFunc(mine, func(x, y any) int { return at(x) - at(y) })
	return mine
}
