// SPDX-License-Identifier: Apache-2.0

package site

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/module"
)

// valuesOf returns the values that valid rows of the tables of rules give a part of conf.
func valuesOf(t *testing.T, stanza string) (values []string) {
	t.Helper()
	for _, r := range ruleRows(t) {
		var doc struct{ Conf map[string]any }
		if r.want != "" || yaml.Unmarshal([]byte(r.text), &doc) != nil || doc.Conf[stanza] == nil {
			continue
		}
		if value, err := json.Marshal(doc.Conf[stanza]); err == nil {
			values = append(values, string(value))
		}
	}
	return values
}

// stanzaOf is where a kind is written: swap space is a mount of a type of its own, and
// passwords are those of users.
func stanzaOf(kind string) string {
	for _, m := range module.Conf() {
		if m.Writes(kind) {
			return m.Name
		}
	}
	return kind
}

// Two nodes that differ in one kind alone are sent different overlays, each with
// what it asks for: the encoding that nodes share must not be another node's.
func TestEveryKindReachesItsNode(t *testing.T) {
	fields := reflect.TypeFor[spec.Items]()
	for i := range fields.NumField() {
		kind, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		stanza, tried := stanzaOf(kind), 0
		for _, value := range valuesOf(t, stanza) {
			s, _ := Parse(files("site.yaml", head+"secrets: {ann: {command: [cat, ann]}}\nnodes: [{name: a}, {name: b}, {name: c}]\nconf:\n  overrides:\n    divingbell_"+stanza+":\n      hosts:\n      - {name: b, conf: {"+stanza+": "+value+"}}\n"+withLayer), "site.yaml")
			if s == nil {
				continue // it needs more of its row
			}
			got := map[string]spec.Overlay{}
			for _, n := range []string{"a", "b", "c", "b", "a"} { // twice: from the cache
				data, err := s.Compile(n, "", "")
				if err != nil {
					t.Fatal(err)
				}
				var o spec.Overlay
				if err := spec.Decode(data, &o); err != nil {
					t.Fatal(err)
				}
				if old, ok := got[n]; ok && !reflect.DeepEqual(old, o) {
					t.Errorf("%s: node %s is sent two overlays", kind, n)
				}
				got[n] = o
			}
			set := func(n string) bool { return !reflect.ValueOf(got[n].Items).Field(i).IsZero() }
			if set("b") {
				tried++
			}
			if set("a") || set("c") {
				t.Errorf("%s of node b is sent to another: %s", kind, value)
			}
		}
		if tried == 0 {
			t.Errorf("no valid row of testdata/rules sends a node items of kind %s", kind)
		}
	}
}

// Every module is whole: what one needs of another table, its own row says.
func TestEveryModuleIsWhole(t *testing.T) {
	fields := reflect.TypeFor[spec.Items]()
	for i := range fields.NumField() {
		kind, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		if !slices.ContainsFunc(module.Conf(), func(m *module.Module) bool { return m.Name == stanzaOf(kind) && m.Lines != nil }) {
			t.Errorf("no module prints items of kind %s", kind)
		}
	}
	for _, m := range module.Conf() {
		if m.Doc == nil || m.About == "" || m.Compile == nil {
			t.Errorf("module %s lacks its type, its line of help or its compiler", m.Name)
		}
		if m.Lines == nil && m.Baked == nil {
			t.Errorf("module %s has neither items nor a part of a recipe", m.Name)
		}
		if m.Image != (m.Baked != nil) {
			t.Errorf("module %s: acts in a layer %v, has a part of a recipe %v", m.Name, m.Image, m.Baked != nil)
		}
	}
}
