// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestGolden: the state that 0.9.0 wrote is read, and written byte-equal; it has every key of
// the page, and the page every key of the types.
func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/state.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse(golden)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := encode(s); err != nil || !bytes.Equal(again, golden) {
		t.Errorf("written otherwise: %v\n%s", err, again)
	}
	page, err := os.ReadFile("../../docs/formats/state.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []reflect.Type{reflect.TypeFor[State](), reflect.TypeFor[Generation](), reflect.TypeFor[Fleet](), reflect.TypeFor[Trial](), reflect.TypeFor[Proof]()} {
		for i := range of.NumField() {
			key, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if !bytes.Contains(golden, []byte(`"`+key+`":`)) {
				t.Errorf("the golden state lacks %s of %s", key, of.Name())
			}
			if !bytes.Contains(page, []byte("\n| "+key+" |")) && !bytes.Contains(page, []byte("\n| "+key+", always |")) {
				t.Errorf("docs/formats/state.md lacks %s of %s", key, of.Name())
			}
		}
	}
}
