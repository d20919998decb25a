// SPDX-License-Identifier: Apache-2.0

package spec

import "testing"

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
