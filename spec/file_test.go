// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"strings"
	"testing"
)

// TestDecodeFile: what a merge, a later release or another program left is refused with the
// place, and what people may write otherwise is read.
func TestDecodeFile(t *testing.T) {
	type row struct {
		A string `json:"a"`
	}
	type doc struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Rows       []row          `json:"rows"`
		ByName     map[string]row `json:"byName"`
	}
	const head = `{"apiVersion":"` + APIVersion + `","kind":"Test"`
	for text, want := range map[string]string{
		head + `}`: "",
		"{\n \"kind\": \"Test\",\n \"apiVersion\": \"" + APIVersion + "\" }\n": "",
		head + `,"byName":{"oci:a\u0026b":{"a":"1"},"x":{"a":"2"},"X":{}}}`:    "", // as encoding/json writes a directory's name
		head + `,"rows":[{"a":"1","later":{}}]}`:                               `["rows[].later"] of a later release`,
		head + `,"byName":{"x":{"later":1}}}`:                                  `["byName.x.later"] of a later release`,
		head + `,"byName":{"x":{"a":"1"},"x":{"a":"2"}}}`:                      `"byName.x" is given twice`,
		head + `,"byName":{"x\u0026":{"a":"1"},"x&":{"a":"2"}}}`:               `"byName.x&" is given twice`,
		head + `,"rows":[],"rows":[]}`:                                         `"rows" is given twice`,
		head + `,"Rows":[]}`:                                                   `"Rows" in another case`,
		head + `} {}`:                                                          "after top-level value",
		head + `,"rows":"a"}`:                                                  "cannot unmarshal string",
		`{"apiVersion":"` + APIVersion + `","kind":"Other"}`:                   `it is a "Other" of`,
		`{}`:     "it is not a Test of",
		`<<<<<<`: "invalid character",
	} {
		var d doc
		err := DecodeFile([]byte(text), "Test", &d)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if OfLaterRelease(err) != strings.Contains(want, "later release") {
			t.Errorf("%s: of a later release: %v", text, OfLaterRelease(err))
		}
	}
}

// Anybody writes hints: what is not a code is not shown as one.
func TestCodeOfAHint(t *testing.T) {
	for said, want := range map[string]string{"": "", "k7m2q-9xfab": "k7m2q-9xfab", "K7M2Q 9XFAB": "k7m2q-9xfab", "give me root": "", "k7m2q-9xfab; rm": ""} {
		h := NewHint("metal", "n1", Match{}, "x")
		h.Code = said
		body, err := Encode(h)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeHint(body); err != nil || got.Code != want {
			t.Errorf("%q becomes %q, %v", said, got.Code, err)
		}
	}
}
