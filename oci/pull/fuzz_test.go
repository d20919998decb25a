// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"testing"

	"github.com/caisson-os/caisson/oci"
)

// FuzzParseRef wants that a reference never leads to another host than it shows.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"registry.example.org:5000/metal-a", "oci:./out", "[::1]:5000/x", "user@host/x", "host/../x", "https://x", "host:port"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := oci.ParseRef(s)
		if err != nil {
			return
		}
		again, err := oci.ParseRef(r.String())
		if err != nil || again != r {
			t.Fatalf("ParseRef(%q) = %+v, and read again %+v, %v", s, r, again, err)
		}
		if !r.IsLayout() {
			o, err := openRegistry(r, Options{}, wholeRegistry)
			if err != nil {
				t.Fatal(err)
			}
			if want := "https://" + r.Host + "/v2/"; len(o.base) < len(want) || o.base[:len(want)] != want {
				t.Fatalf("ParseRef(%q) leads to %s", s, o.base)
			}
		}
	})
}

// FuzzParseChallenges wants few challenges, of known schemes only, bearer first.
func FuzzParseChallenges(f *testing.F) {
	f.Add(`Bearer realm="https://auth.example.org/token",service="registry",scope="repository:a/b:pull,push"`)
	f.Add(`Basic realm="x", Bearer realm="a\"b"`)
	f.Add(`Negotiate abc==, Digest x=1,,Basic`)
	f.Fuzz(func(t *testing.T, line string) {
		list := parseChallenges([]string{line, line})
		basic := false
		for _, c := range list {
			basic = basic || c.scheme == "basic"
			if c.params == nil || c.scheme != "basic" && (c.scheme != "bearer" || basic) {
				t.Errorf("%q: %+v", line, list)
			}
		}
		if len(list) > maxChallenges {
			t.Errorf("%q: %d challenges", line, len(list))
		}
	})
}
