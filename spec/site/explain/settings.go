// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Setting is one value of a node: a leaf of an [Explanation].
type Setting struct {
	Path   string  `json:"path"` // KIND/KEY and what is below; an element of a list is named by its name or its text
	Value  string  `json:"value"`
	Origin *Origin `json:"origin,omitempty"` // absent for labels and the kernel's arguments
}

// Settings returns all values of the node, sorted by path: of its configuration, the machine,
// health checks, operations, its labels, and the kernel's arguments.
func (e *Explanation) Settings() []Setting {
	var list []Setting
	root := map[string]any{"conf": e.Conf, "machine": e.Machine, "health": e.Health, "swap": e.Swap, "operations": e.Operations}
	for pointer, origin := range e.Origins {
		path, value := find(root, strings.Split(pointer, "/")[1:])
		if d, ok := e.Defaults[pointer]; ok {
			value = text(d)
		}
		list = append(list, Setting{Path: strings.TrimPrefix(path, "conf/"), Value: value, Origin: &origin})
	}
	for k, v := range e.Labels {
		list = append(list, Setting{Path: "labels/" + k, Value: v})
	}
	for _, arg := range e.KernelArgs {
		name, value, _ := strings.Cut(arg, "=")
		list = append(list, Setting{Path: "kernel/" + name, Value: value})
	}
	slices.SortFunc(list, func(a, b Setting) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Value, b.Value))
	})
	return list
}

// Has reports whether the setting is the one at key, or below it.
func (s Setting) Has(key string) bool { return s.Path == key || strings.HasPrefix(s.Path, key+"/") }

// find follows a JSON pointer from v, and returns the path that people read and the text of what is there.
func find(v any, pointer []string) (path, value string) {
	var parts []string
	for _, step := range pointer {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(at) {
				v = nil
				break
			}
			v, step = at[i], element(at, i)
		default:
			v = nil // what holds by default is not in the document
		}
		parts = append(parts, step)
	}
	return strings.Join(parts, "/"), text(v)
}

// element names an element of a list by its name, which entries of packages, users and checks
// have, or by its text, so that an element that was put before it changes nothing else.
func element(list []any, i int) string {
	switch v := list[i].(type) {
	case map[string]any:
		for _, key := range []string{"name", "type"} {
			if name, ok := v[key].(string); ok {
				return name
			}
		}
	case string:
		return v
	}
	return strconv.Itoa(i)
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any:
		return "{}" // only an empty one is a value of its own
	case []any:
		return "[]"
	case []string:
		return strings.Join(v, " ")
	}
	return fmt.Sprint(v)
}
