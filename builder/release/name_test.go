// SPDX-License-Identifier: Apache-2.0

package release

import "testing"

func TestParseName(t *testing.T) {
	for name, want := range map[string][2]string{
		"oci:out":                               {"oci:out", "current"},
		"oci:out@7":                             {"oci:out", "7"},
		"oci:out@sha256:00":                     {"oci:out", "sha256:00"},
		"oci:out/layer:7":                       {"oci:out", "7"},
		"oci:a/layer/out":                       {"oci:a/layer/out", "current"},
		"oci:home/me@work/out":                  {"oci:home/me@work/out", "current"},
		"registry.example.org:5000/layer:7":     {"registry.example.org:5000", "7"},
		"registry.example.org:5000/a":           {"registry.example.org:5000/a", "current"},
		"registry.example.org/a/layer@sha256:0": {"registry.example.org/a", "sha256:0"},
		"registry.example.org/a@current":        {"registry.example.org/a", "current"},
		"oci:out/node:node1":                    {},
		"registry.example.org/a/fleet:current":  {},
	} {
		ref, reference, err := ParseName(name)
		if got := [2]string{ref, reference}; got != want || (err != nil) != (want[0] == "") {
			t.Errorf("ParseName(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}
