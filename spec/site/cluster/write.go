// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// written is an object as the file that it would be: a value a line, so that a line is a
// place in the object.
type written struct {
	Object
	text  []byte
	paths []string // a JSON path for each line
	most  int      // lines; what has more is not written to its end
	over  bool     // it has more, or is nested too deep
}

// Bounds of what is taken apart, whatever an API server stored. A line has one value, and takes
// some 700 bytes while it is taken apart, of which half stay.
const (
	MaxValues   = 128 << 10 // lines of an object,
	MaxTogether = 256 << 10 // of all objects of a namespace, and of all that are remembered
	maxDepth    = 64        // as in files
)

// write makes a file of an object, of so many lines at most: what the cluster adds to it is left
// out.
func write(o Object, most int) written {
	w := written{Object: o, most: most}
	doc := map[string]any{}
	for key, v := range o.Content {
		if key != "metadata" && key != "status" {
			doc[key] = v
		}
	}
	doc["metadata"] = map[string]any{"name": o.Name}
	w.value("", doc, "", "")
	return w
}

// line ends a line of the text.
func (w *written) line(path, text string) {
	w.text = append(append(w.text, text...), '\n')
	w.paths = append(w.paths, path)
}

// value writes a value after what begins its line, and before what ends it.
func (w *written) value(before string, v any, path, after string) {
	indent := before[:len(before)-len(strings.TrimLeft(before, " "))]
	if w.over = w.over || len(w.paths) >= w.most || len(indent) > maxDepth; w.over {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			w.line(path, before+"{}"+after)
			return
		}
		w.line(path, before+"{")
		for i, key := range slices.Sorted(maps.Keys(v)) {
			w.value(indent+" "+quote(key)+": ", v[key], path+member(key), comma(i, len(v)))
		}
		w.line(path, indent+"}"+after)
	case []any:
		if len(v) == 0 {
			w.line(path, before+"[]"+after)
			return
		}
		w.line(path, before+"[")
		for i, e := range v {
			w.value(indent+" ", e, path+"["+strconv.Itoa(i)+"]", comma(i, len(v)))
		}
		w.line(path, indent+"]"+after)
	case string:
		w.line(path, before+quote(v)+after)
	case nil:
		w.line(path, before+"null"+after)
	case bool, int64, int, json.Number:
		w.line(path, before+fmt.Sprint(v)+after)
	default: // a float64: what has a fraction, or an exponent
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(quote(fmt.Sprint(v))) // JSON has no such number
		}
		w.line(path, before+string(text)+after)
	}
}

func comma(i, n int) string {
	if i+1 < n {
		return ","
	}
	return ""
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// member is a step of a JSON path, as kubectl takes it.
func member(key string) string {
	if word.MatchString(key) {
		return "." + key
	}
	return "['" + strings.ReplaceAll(key, "'", `\'`) + "']"
}

// quote writes a text between double quotes as both JSON and YAML read it.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r > 0xffff && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		case !unicode.IsPrint(r) || r == '\ufeff':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
