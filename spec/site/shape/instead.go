// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/site/tree"
)

// exampler is implemented by a type that says how one of its values is written, to an author
// who wrote something else in its place: a line of another program's file, or a map that has
// none of its fields. It is a YAML value in one line, or "".
type exampler interface {
	Example(instead *tree.Value) string
}

// instead returns a hint for a value that stands where a list, or a map with the fields of
// a struct, belongs.
func instead(v *tree.Value, t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Slice && v.Kind == tree.Scalar:
		if e := element(v, t.Elem()); e != "" {
			return "write a list: [" + e + "]"
		}
	case t.Kind() == reflect.Slice && v.Kind == tree.Mapping && t.Elem().Kind() == reflect.Struct && len(v.Fields) > 0:
		fields := structFields(t.Elem())
		first := slices.IndexFunc(fields, func(f Field) bool { return f.required })
		if slices.ContainsFunc(fields, func(f Field) bool { return f.Name == v.Fields[0].Key }) {
			return "write a list: an entry begins with -"
		}
		if first >= 0 {
			return "write a list: - {" + fields[first].Name + ": " + Quoted(v.Fields[0].Key) + ", …}"
		}
	case t.Kind() == reflect.Struct && v.Kind == tree.Sequence && len(v.List) == 1 && v.List[0].Kind == tree.Mapping:
		return "leave the - out: it is not a list"
	case t.Kind() == reflect.Struct:
		if e := element(v, t); e != "" {
			return "write " + e
		}
	}
	return ""
}

// insteadOfMap returns a hint for a value that stands where a map of the author's keys
// belongs, whose values are of a type.
func insteadOfMap(v *tree.Value, t reflect.Type) string {
	first := v
	if v.Kind == tree.Sequence {
		if len(v.List) == 0 {
			return "write {}"
		}
		first = v.List[0]
	}
	switch {
	case first.Kind == tree.Mapping && t.Kind() == reflect.Struct && scalar(t):
		if name, value := first.Get("name"), first.Get("value"); name != nil && value != nil {
			return "write " + Quoted(name.Text) + ": " + Quoted(value.Text)
		}
		return "leave the dashes out"
	case first.Kind == tree.Mapping:
		return "give each entry a name in place of the dash, as in NAME: {…}"
	case first.Kind != tree.Scalar:
		return ""
	case scalar(t):
		if key, value, ok := pair(firstLine(first.Text)); ok {
			hint := "write " + Quoted(key) + ": " + Quoted(value)
			if v.Kind == tree.Sequence {
				return hint + ", without a dash"
			}
			if strings.Contains(strings.TrimSpace(v.Text), "\n") {
				return hint + ", and so each line"
			}
			return hint
		}
	default:
		if e := element(first, t); e != "" {
			return "give it a name, as in NAME: " + e
		}
	}
	return ""
}

// element is how a text is written as a value of a type, "" where that cannot be told.
func element(v *tree.Value, t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if e, ok := reflect.New(t).Interface().(exampler); ok {
		return e.Example(v)
	}
	switch {
	case v.Kind != tree.Scalar:
	case scalar(t):
		return Quoted(v.Text)
	case t.Kind() == reflect.Struct:
		required := slices.DeleteFunc(slices.Clone(structFields(t)), func(f Field) bool { return !f.required })
		if len(required) == 1 && len(v.Text) <= 40 && !strings.ContainsAny(v.Text, "\n{}") {
			return "{" + required[0].Name + ": " + v.Text + "}"
		}
	}
	return ""
}

// scalar reports whether values of a type are written as a text.
func scalar(t reflect.Type) bool {
	if _, ok := reflect.New(t).Interface().(interface{ AlsoText() }); ok { // a text, or else a map
		return true
	}
	return t == reflect.TypeFor[Text]() || t == reflect.TypeFor[Block]() || t == reflect.TypeFor[Flag]() || t == reflect.TypeFor[Number]()
}

// firstLine is the first line that says something in most files of settings.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != ';' {
			return line
		}
	}
	return ""
}

// Line returns the words of the first line of a text, of one that was written in place of
// something else.
func Line(v *tree.Value) []string {
	if v == nil || v.Kind != tree.Scalar {
		return nil
	}
	return strings.Fields(firstLine(v.Text))
}

// pair takes a setting apart: KEY=VALUE, KEY: VALUE, or KEY VALUE behind options.
func pair(line string) (key, value string, ok bool) {
	for _, mark := range []string{"=", ": "} {
		if key, value, ok = strings.Cut(line, mark); ok && strings.TrimSpace(key) != "" {
			return strings.TrimSpace(key), strings.TrimSpace(value), true
		}
	}
	words := strings.Fields(line)
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		words = words[1:]
	}
	if len(words) < 2 {
		return "", "", false
	}
	return words[0], words[1], true
}

var plainText = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./+@%=-]*$`)

// Quoted is a text as it is written in YAML, cut where it is long.
func Quoted(text string) string {
	short := []rune(strings.TrimSpace(firstLine(text)))
	if len(short) > 40 {
		return strconv.Quote(string(short[:39]) + "…")
	}
	if plainText.MatchString(string(short)) {
		return string(short)
	}
	return strconv.Quote(string(short))
}
