// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type animal struct {
	Name  Text      `site:"name,required"`
	Kind  Text      `site:"kind" enum:"cat,dog"`
	Legs  Number    `site:"legs"`
	Tame  Flag      `site:"tame"`
	Food  Words     `site:"food"`
	Young []animal  `site:"young"`
	Notes Map[Text] `site:"notes"`
}

// What the decoder takes and what the schema allows of one type is the same.
func TestDecoderAndSchemaAgree(t *testing.T) {
	text, err := Schema("https://example.org/animal", "animal", false, Document{Type: reflect.TypeFor[animal]()})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("animal", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("animal")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{ // the rules that are broken
		`{"name": "a"}`: "",
		`{"name": "a", "kind": "cat", "legs": 4, "tame": "off", "food": "fish milk", "young": [{"name": "b", "food": ["fish"]}], "notes": {"x": 1}}`: "",
		`{"name": 7, "legs": "4", "tame": true, "kind": null}`: "",
		`{}`:                                             "required",
		`{"name": null}`:                                 "required",
		`{"name": "a", "nmae": "b"}`:                     "unknown-key",
		`{"name": "a", "kind": "cow"}`:                   "enum",
		`{"name": "a", "legs": "four"}`:                  "type",
		`{"name": "a", "tame": "maybe"}`:                 "type",
		`{"name": "a", "food": {"a": 1}}`:                "type",
		`{"name": ["a"], "young": [{"legs": 4.5}, "b"]}`: "type type required type",
		`{"name": "a", "notes": {"x": [1]}}`:             "type",
	} {
		r := &report.Report{}
		docs := tree.Parse(&report.Source{Name: "x"}, []byte(text), r)
		if len(docs) != 1 {
			t.Fatalf("%s: %v", text, r.Problems)
		}
		(&Checker{Report: r}).Decode(docs[0], &animal{})
		var rules []string
		for _, p := range r.Problems {
			rules = append(rules, p.Rule)
		}
		if got := strings.Join(rules, " "); got != want {
			t.Errorf("%s: %q is reported, want %q", text, got, want)
		}
		var plain any
		if err := json.Unmarshal([]byte(text), &plain); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(plain); (err == nil) != (want == "") {
			t.Errorf("%s: the schema says %v", text, err)
		}
	}
}

// carried is an animal as it crosses to a node.
type carried struct {
	ID    string   `json:"id"` // which nobody writes
	Name  string   `json:"name" site:",required"`
	Kind  string   `json:"kind,omitempty" enum:"cat,dog" doc:"species"`
	Legs  int      `json:"legs,omitempty" site:","`
	Tame  bool     `json:"tame,omitempty" site:","`
	Food  []string `json:"food,omitempty" site:",words"`
	Tags  []string `json:"tags,omitempty" site:",block"`
	Sleep int64    `json:"sleep,omitempty" site:"rest,duration"`
}

// Plain fields are read as their written twins are: the same values, the same errors, and
// places for what could be read alone.
func TestPlainFields(t *testing.T) {
	type twin struct {
		Name  Text     `site:"name,required"`
		Kind  Text     `site:"kind" enum:"cat,dog" doc:"species"`
		Legs  Number   `site:"legs"`
		Tame  Flag     `site:"tame"`
		Food  Words    `site:"food"`
		Tags  []Block  `site:"tags"`
		Sleep Duration `site:"rest"`
	}
	for text, want := range map[string]carried{
		"name: a\nlegs: 4\ntame: on\nfood: a b\ntags: ['a\n\n  b']\nrest: 2h\n": {Name: "a", Legs: 4, Tame: true, Food: []string{"a", "b"}, Tags: []string{"a\nb"}, Sleep: 7200},
		"name: a\nkind: cow\nlegs: x\ntame: [on]\nfood: [a, [b]]\nrest: 2\n":    {Name: "a", Kind: "cow", Food: []string{"a", ""}},
		"id: a\nsleep: 2h\nname: null\ntags: []\n":                              {},
	} {
		var reports [2]report.Report
		src := &report.Source{Name: "x"}
		v := tree.Parse(src, []byte(text), &reports[0])[0]
		var got carried
		c := &Checker{Report: &reports[0]}
		c.Decode(v, &got)
		(&Checker{Report: &reports[1]}).Decode(v, &twin{})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		of := func(r report.Report) string {
			var b strings.Builder
			for _, p := range r.Problems {
				b.WriteString(p.At.String() + " " + p.Message + "\n")
			}
			return b.String()
		}
		said := of(reports[0])
		if other := of(reports[1]); said != other {
			t.Errorf("%s: plain fields are reported as\n%s, their twins as\n%s", text, said, other)
		}
		for _, key := range []string{"name", "legs", "tame", "rest", "tags"} {
			written := v.Get(key) != nil && v.Get(key).Kind != tree.Null && !strings.Contains(said, v.Get(key).At.String()+" ")
			if at := c.At(v, key); (at != report.Pos{}) != written {
				t.Errorf("%s: %s has the place %v", text, key, at)
			}
		}
	}
	var schemas [2]string
	for i, of := range []reflect.Type{reflect.TypeFor[carried](), reflect.TypeFor[twin]()} {
		text, err := Schema("x", "x", false, Document{Type: of})
		if err != nil {
			t.Fatal(err)
		}
		schemas[i] = string(text)
	}
	if schemas[0] != schemas[1] {
		t.Errorf("%s\nis not\n%s", schemas[0], schemas[1])
	}
}

func TestDecodeKeepsWhatWasWritten(t *testing.T) {
	r := &report.Report{}
	var a animal
	(&Checker{Report: r}).Decode(tree.Parse(&report.Source{Name: "x"}, []byte("name: 0640\ntame: on\nfood: [a b, c]\nnotes: {z: 1e6, a: no}\n"), r)[0], &a)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if a.Name.S != "0640" || a.Name.At.Line != 1 || !a.Tame.On || len(a.Food.List) != 2 || a.Kind.Set() {
		t.Errorf("%+v", a)
	}
	if len(a.Notes) != 2 || a.Notes[0].Key.S != "z" || a.Notes[0].Val.S != "1e6" || a.Notes[1].Val.S != "no" {
		t.Errorf("notes %+v", a.Notes)
	}
}
