// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/test/require"
)

// reference merges plain data as the table in docs/overrides.md "How an
// override merges" says, a case a row. It shares nothing with the merger.
func reference(base map[string]any, over map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range base {
		out[k] = v
	}
	for k, o := range over {
		b, has := base[k]
		switch o := o.(type) {
		case map[string]any:
			switch b := b.(type) {
			case map[string]any: // map on map: key by key
				out[k] = reference(b, o)
			case nil: // map where nothing is
				out[k] = o
			default: // map on a value or a list: the base stays
				_ = has
			}
		default: // a value, a list or null replaces whatever is there
			out[k] = o
		}
	}
	return out
}

// plainOf is a value as plain data.
func plainOf(v *Value) any {
	switch {
	case v == nil || v.Kind == Null:
		return nil
	case v.Kind == Scalar:
		return v.Text
	case v.Kind == Sequence:
		out := make([]any, len(v.List))
		for i, e := range v.List {
			out[i] = plainOf(e)
		}
		return out
	}
	out := map[string]any{}
	for _, f := range v.Fields {
		out[f.Key] = plainOf(f.Val)
	}
	return out
}

// randomTree makes a map of few keys, so that two of them meet often.
func randomTree(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range r.IntN(5) {
		key := string(rune('a' + r.IntN(4)))
		if r.IntN(20) == 0 {
			for i := range 20 { // enough for the index
				out[fmt.Sprint("k", i)] = fmt.Sprint(r.IntN(3))
			}
		}
		switch n := r.IntN(8); {
		case n < 3 && depth > 0:
			out[key] = randomTree(r, depth-1)
		case n == 3:
			out[key] = nil
		case n == 4:
			out[key] = []any{"x", fmt.Sprint(r.IntN(3))}
		case n == 5:
			out[key] = []any{}
		case n == 6:
			out[key] = ""
		default:
			out[key] = fmt.Sprint(r.IntN(4))
		}
	}
	return out
}

func valueOf(t testing.TB, data any) *Value {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	r := &report.Report{}
	docs := Parse(&report.Source{Name: "x"}, text, r)
	if len(docs) != 1 || r.Err() != nil {
		t.Fatalf("%s: %v", text, r.Err())
	}
	return docs[0]
}

func TestMergeAgainstReference(t *testing.T) {
	require.Slow(t)
	r := rand.New(rand.NewPCG(1, 2))
	dropped, changed := 0, 0
	for range 20000 {
		base, over := randomTree(r, 3), randomTree(r, 3)
		b, o := valueOf(t, base), valueOf(t, over)
		got := plainOf(MergeOverride(b, o, func(*Value) { dropped++ }))
		want := reference(base, over)
		if !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("base %v\nover %v\n got %v\nwant %v", base, over, got, want)
		}
		if !reflect.DeepEqual(plainOf(b), any(base)) || !reflect.DeepEqual(plainOf(o), any(over)) {
			t.Fatalf("the merge changed its input: %v %v", base, over)
		}
		if !reflect.DeepEqual(want, base) {
			changed++
		}
	}
	// The inputs must meet the rows of the table, or the test shows nothing.
	if dropped < 500 || changed < 5000 {
		t.Errorf("only %d maps were dropped and %d merges changed something", dropped, changed)
	}
}

// One row of the table each.
func TestMergeRows(t *testing.T) {
	for _, tt := range []struct{ base, over, want string }{
		{`{"a":{"b":"1","c":"2"}}`, `{"a":{"b":"3"}}`, `{"a":{"b":"3","c":"2"}}`},
		{`{"a":["1"]}`, `{"a":["2"]}`, `{"a":["2"]}`},
		{`{"a":{"b":"1"}}`, `{"a":"0"}`, `{"a":"0"}`},
		{`{"a":"1"}`, `{"a":false}`, `{"a":"false"}`},
		{`{"a":["1"]}`, `{"a":[]}`, `{"a":[]}`},
		{`{"a":"1"}`, `{"a":""}`, `{"a":""}`},
		{`{"a":["1"]}`, `{"a":{"b":"1"}}`, `{"a":["1"]}`},
		{`{"a":"1"}`, `{"a":{"b":"1"}}`, `{"a":"1"}`},
		{`{"a":{"b":"1"}}`, `{"a":{}}`, `{"a":{"b":"1"}}`},
		{`{"a":{"b":"1"}}`, `{"a":null}`, `{"a":null}`},
		{`{"a":{"b":"1"}}`, `{}`, `{"a":{"b":"1"}}`},
		{`{}`, `{"a":{"b":"1"}}`, `{"a":{"b":"1"}}`},
	} {
		var base, over, want any
		for text, into := range map[string]*any{tt.base: &base, tt.over: &over, tt.want: &want} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		// Equal texts would share a key above.
		if tt.base == tt.want {
			base = want
		}
		if tt.over == tt.want {
			over = want
		}
		got := plainOf(MergeOverride(valueOf(t, base), valueOf(t, over), func(*Value) {}))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s with %s = %v, want %s", tt.base, tt.over, got, tt.want)
		}
	}
}

func TestMergeFiles(t *testing.T) {
	got := plainOf(MergeFiles(valueOf(t, map[string]any{"a": map[string]any{"b": "1", "c": "2"}, "l": []any{"1"}, "n": "1"}),
		valueOf(t, map[string]any{"a": map[string]any{"b": nil, "d": "4"}, "l": map[string]any{"x": "y"}, "new": nil}), func(_, _ *Value) {}))
	want := map[string]any{"a": map[string]any{"c": "2", "d": "4"}, "l": map[string]any{"x": "y"}, "n": "1", "new": nil}
	if !reflect.DeepEqual(got, any(want)) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A list that is marked is laid after the one it meets, in files and in overrides,
// and before nothing; neither changes.
func TestMergeAppends(t *testing.T) {
	list := func(appended bool, words ...any) *Value {
		v := valueOf(t, append([]any{}, words...))
		v.Append = appended
		return v
	}
	in := func(v *Value) *Value { return &Value{Kind: Mapping, Fields: []Field{{Key: "l", Val: v}}} }
	files := func(base, over *Value, dropped func(*Value)) *Value {
		return MergeFiles(base, over, func(_, over *Value) {
			if over.Append {
				dropped(over)
			}
		})
	}
	for name, merge := range map[string]func(base, over *Value, dropped func(*Value)) *Value{"files": files, "override": MergeOverride} {
		base := list(false, "1")
		dropped := func(v *Value) { t.Errorf("%s: dropped %v", name, plainOf(v)) }
		for want, m := range map[string]*Value{
			"[1 2]":   merge(in(base), in(list(true, "2")), dropped).Get("l"),
			"[2]":     merge(in(base), in(list(false, "2")), dropped).Get("l"),
			"[3]":     merge(&Value{Kind: Mapping}, in(list(true, "3")), dropped).Get("l"),
			"[3 4 5]": merge(merge(in(list(true, "3")), in(list(true, "4")), dropped), in(list(true, "5")), dropped).Get("l"),
		} {
			if got := fmt.Sprint(plainOf(m)); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if len(base.List) != 1 {
			t.Errorf("%s changed the base: %v", name, plainOf(base))
		}
		said := 0
		got := merge(in(valueOf(t, map[string]any{"group": []any{}})), in(list(true, "2")), func(*Value) { said++ }).Get("l")
		if said != 1 || got.Kind != Mapping {
			t.Errorf("%s: a list was appended to %s, said %d times", name, got.Kind, said)
		}
	}
}

// FuzzMerge: on any two maps the merger agrees with the reference, and changes
// neither.
func FuzzMerge(f *testing.F) {
	f.Add("a: {b: 1}\n", "a: {b: 2, c: [1]}\n")
	f.Add("a: [1]\n", "a: {b: 2}\n")
	f.Add("a: &a {b: 1}\nc: *a\n", "a:\nc: {b: {}}\n")
	f.Fuzz(func(t *testing.T, base, over string) {
		if len(base)+len(over) > 1<<12 {
			t.Skip()
		}
		read := func(text string) *Value {
			r := &report.Report{}
			docs := Parse(&report.Source{Name: "x"}, []byte(text), r)
			if r.Err() != nil || len(docs) != 1 || docs[0].Kind != Mapping || docs[0].size > 1<<12 {
				return nil
			}
			return docs[0]
		}
		b, o := read(base), read(over)
		if b == nil || o == nil {
			t.Skip()
		}
		plainBase, plainOver := plainOf(b).(map[string]any), plainOf(o).(map[string]any)
		got := plainOf(MergeOverride(b, o, func(*Value) {}))
		if want := reference(plainBase, plainOver); !reflect.DeepEqual(got, any(want)) {
			t.Errorf("got %v, want %v", got, want)
		}
		if !reflect.DeepEqual(plainOf(b), any(plainBase)) || !reflect.DeepEqual(plainOf(o), any(plainOver)) {
			t.Error("the merge changed its input")
		}
		// Files merge too, without an end that is not a map.
		if m := MergeFiles(b, o, func(_, _ *Value) {}); m.Kind != Mapping {
			t.Errorf("files merge to %s", m.Kind)
		}
	})
}
