// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"slices"
	"strings"
)

// Rules are the package's rules, for tests that take some out.
type Rules = rules

// Whole holds the checks that the package's functions use.
var Whole = whole

// Names returns the name of every check.
func (r rules) Names() []string {
	return slices.Concat(r.parse.Names(), r.descriptor.Names(), r.content.Names(), r.document.Names(), r.blob.Names())
}

// Without returns rules that lack a check. Those without "strict" read manifests as
// a careless program does.
func (r rules) Without(name string) Rules {
	if name == "strict" {
		r.parse = r.parse.With(name, lenient)
		return r
	}
	return rules{
		parse: r.parse.Without(name), descriptor: r.descriptor.Without(name), content: r.content.Without(name),
		document: r.document.Without(name), blob: r.blob.Without(name),
	}
}

func lenient(p *parsed) error {
	for _, into := range []any{p.into, &p.shape} {
		_ = json.NewDecoder(strings.NewReader(string(p.raw))).Decode(into) // whatever can be read of it
	}
	p.spread()
	return nil
}
