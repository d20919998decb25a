// SPDX-License-Identifier: Apache-2.0

package apt

import "testing"

func TestSource(t *testing.T) {
	for text, want := range map[string][2]string{
		"Package: jq\nVersion: 1.6-2\n":                                                        {"jq", ""},
		"Package: libc6\nVersion: 2.36-9\nSource: glibc\n":                                     {"glibc", ""},
		"Package: jq\nVersion: 1.6-2+b1\nSource: jq (1.6-2)\n":                                 {"jq", "1.6-2"},
		"Package: a\nVersion: 1\nSource: b (1)\n":                                              {"b", ""},
		"Package: linux-image-amd64\nVersion: 6.1.1-1\nSource: linux-signed-amd64 (6.1.1+1)\n": {"linux-signed-amd64", "6.1.1+1"},
	} {
		if name, version := source(Stanzas(text)[0]); name != want[0] || version != want[1] {
			t.Errorf("%q: %s %s", text, name, version)
		}
	}
}

// The source of each resolved package is what the index says, and a package that no index has is left alone.
func TestSetSources(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0", "Source: libsrc (0.9)")
	a.add("plain", "2:1.0")
	s := a.updated()
	debs, err := s.Resolve(t.Context(), Request{Install: []string{"lib", "plain"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetSources(t.Context(), debs); err != nil {
		t.Fatal(err)
	}
	if debs[0].Source != "libsrc" || debs[0].SourceVersion != "0.9" || debs[1].Source != "plain" || debs[1].SourceVersion != "" {
		t.Errorf("%+v", debs)
	}
	other := debs[0]
	other.SHA256, other.Source = "00", ""
	if err := s.SetSources(t.Context(), []Deb{other, debs[1]}); err != nil || other.Source != "" {
		t.Errorf("%+v, %v", other, err)
	}
}
