// SPDX-License-Identifier: Apache-2.0

package report

import (
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: caisson.reporters of 0.10.0 is read, and written byte-equal.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.reporters", Page: "../../docs/formats/site-files.md", New: new(reportersDoc), Refused: true,
		Sample: golden.Head(spec.APIVersion, ReportersKind),
		Types:  []reflect.Type{reflect.TypeFor[reportersDoc](), reflect.TypeFor[Reporter]()},
	}.InFile(t, func(name string, v any) error {
		k := &Reporters{file: name, nodes: v.(*reportersDoc).Nodes}
		return k.save(func(string) bool { return true })
	}, func(name string) (any, error) {
		k, err := OpenReporters(name, false)
		if err != nil {
			return nil, err
		}
		return &reportersDoc{spec.APIVersion, ReportersKind, k.nodes}, nil
	}))
}
