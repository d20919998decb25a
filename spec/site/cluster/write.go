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

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// written is an object as the tree that its file would be. The line of a place in it is the
// number of a path, and the column tells a key from its value.
type written struct {
	Object
	src   *report.Source // without data
	doc   *tree.Value    // nil where it is over
	paths []string       // JSON paths: of each value, and of the end of each that has others
	most  int            // of the paths; what has more is not taken to its end
	over  bool           // it has more, or is nested too deep
	nul   []report.Pos   // texts with a NUL character
}

// Bounds of what is taken apart, whatever an API server stored. A path takes some 700 bytes with
// its value while it is taken apart, of which half stay.
const (
	MaxValues   = 128 << 10 // paths of an object,
	MaxTogether = 256 << 10 // of all objects of a namespace, and of all that are remembered
	maxDepth    = 64        // as in files
)

// write makes a tree of an object, of so many paths at most: what the cluster adds to it is left
// out.
func write(o Object, name string, most int) written {
	w := written{Object: o, src: &report.Source{Name: name}, most: most}
	doc := map[string]any{}
	for key, v := range o.Content {
		if key != "metadata" && key != "status" {
			doc[key] = v
		}
	}
	doc["metadata"] = map[string]any{"name": o.Name}
	if w.doc = w.value(doc, "", 0); w.over {
		w.doc, w.paths = nil, nil
	}
	return w
}

// value returns a value at a path, and adds its paths.
func (w *written) value(v any, path string, depth int) *tree.Value {
	if w.over = w.over || len(w.paths) >= w.most || depth > maxDepth; w.over {
		return nil
	}
	w.paths = append(w.paths, path)
	out := &tree.Value{Kind: tree.Scalar, Plain: true, At: report.Pos{Src: w.src, Line: int32(len(w.paths)), Col: 2}}
	switch v := v.(type) {
	case map[string]any:
		out.Kind, out.Plain, out.Fields = tree.Mapping, false, make([]tree.Field, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := report.Pos{Src: w.src, Line: int32(len(w.paths) + 1), Col: 1}
			out.Fields = append(out.Fields, tree.Field{Key: key, At: at, Val: w.value(v[key], path+member(key), depth+1)})
		}
		w.end(path, len(v))
	case []any:
		out.Kind, out.Plain, out.List = tree.Sequence, false, make([]*tree.Value, len(v))
		for i, e := range v {
			out.List[i] = w.value(e, path+"["+strconv.Itoa(i)+"]", depth+1)
		}
		w.end(path, len(v))
	case string:
		if out.Text, out.Plain = v, false; strings.ContainsRune(v, 0) {
			w.nul = append(w.nul, out.At)
		}
	case nil:
		out.Kind = tree.Null
	case bool, int64, int, json.Number:
		out.Text = fmt.Sprint(v)
	default: // a float64: what has a fraction, or an exponent
		text, err := json.Marshal(v)
		if out.Text = string(text); err != nil {
			out.Text, out.Plain = fmt.Sprint(v), false // JSON has no such number
		}
	}
	return out
}

// end adds the path of the end of what has values.
func (w *written) end(path string, n int) {
	if n > 0 {
		w.paths = append(w.paths, path)
	}
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// member is a step of a JSON path, as kubectl takes it.
func member(key string) string {
	if word.MatchString(key) {
		return "." + key
	}
	return "['" + strings.ReplaceAll(key, "'", `\'`) + "']"
}
