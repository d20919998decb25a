// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"slices"
	"strings"
)

// Switches returns what takes each check out, by the check's name; what a switch
// returns puts the check back.
func Switches() map[string][]func() func() {
	off := map[string][]func() func(){}
	out(off, &parseChecks, func(c parseCheck) string { return c.name })
	out(off, &descriptorChecks, func(c descriptorCheck) string { return c.name })
	out(off, &contentChecks, func(c contentCheck) string { return c.name })
	out(off, &documentChecks, func(c documentCheck) string { return c.name })
	out(off, &capChecks, func(c capCheck) string { return c.name })
	off["strict"] = []func() func(){lenientParse}
	return off
}

func out[C any](off map[string][]func() func(), list *[]C, name func(C) string) {
	for _, c := range *list {
		n := name(c)
		off[n] = append(off[n], func() func() {
			was := *list
			*list = slices.DeleteFunc(slices.Clone(was), func(c C) bool { return name(c) == n })
			return func() { *list = was }
		})
	}
}

// lenientParse reads manifests as a careless program does.
func lenientParse() func() {
	was := parseChecks
	parseChecks = slices.Clone(was)
	for i := range parseChecks {
		if parseChecks[i].name == "strict" {
			parseChecks[i].ok = func(p *parsed) error {
				for _, into := range []any{p.into, &p.shape} {
					_ = json.NewDecoder(strings.NewReader(string(p.raw))).Decode(into) // whatever can be read of it
				}
				p.spread()
				return nil
			}
		}
	}
	return func() { parseChecks = was }
}
