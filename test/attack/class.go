// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"embed"
	"testing"

	"go.yaml.in/yaml/v3"
)

//go:embed *.yaml
var classes embed.FS

// LoadClass reads the rows of one class of attacks, NAME.yaml in this directory,
// into the type of the package that is attacked. Unknown keys are errors.
func LoadClass[T any](t testing.TB, name string) []T {
	t.Helper()
	text, err := classes.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var rows []T
	if err := d.Decode(&rows); err != nil {
		t.Fatalf("%s.yaml: %v", name, err)
	}
	if len(rows) == 0 {
		t.Fatalf("%s.yaml has no rows", name)
	}
	return rows
}
