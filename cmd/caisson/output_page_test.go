// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/doctext"
)

const jsonHead = `# What is printed with -o json

Made by a test from the schemas, which are made from the types that are printed. Results are one document on standard output; talk is on standard
error. A verb that fails prints an error there instead, also as JSON, and ends with the exit code that is in it. The schemas are JSON Schema, draft 2020-12.

| verb | prints |
|---|---|
`

const jsonFoot = `
` + "`build`" + ` prints its progress on standard error, one JSON object a line, see [building.md](building.md). ` + "`caisson-agent`" + ` prints errors in the same form; ` + "`apply` and `sync`" + `
print what ` + "`status`" + ` prints.

` + "```sh" + `
caisson plan site.yaml --from oci:out -o json | jq -r '.nodes[] | select(.changes != []) | .name + ": " + .class'
caisson verify oci:out --key keys/operator.pub -o json | jq -e '[.checks[] | select(.verdict != "ok")] == []'
caisson publish site.yaml -o json 2>error.json || jq -r .error error.json
` + "```" + `
`

// checkOutputPage holds docs/json.md to the schemas.
func checkOutputPage(t *testing.T) {
	t.Helper()
	page, verbs := jsonHead, map[string][]string{} // by the shape that they print
	for _, verb := range slices.Sorted(maps.Keys(results)) {
		file := schemaFile(verb)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s shapeOf
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		name := "`" + strings.Replace(verb, "agent ", "caisson-agent ", 1) + "`"
		if verb == "error" {
			name = "any, when it fails"
		}
		verbs[s.String()] = append(verbs[s.String()], fmt.Sprintf("[%s](%s)", name, strings.TrimPrefix(file, "../../docs/")))
	}
	for _, shape := range slices.SortedFunc(maps.Keys(verbs), func(a, b string) int { return strings.Compare(verbs[a][0], verbs[b][0]) }) {
		page += fmt.Sprintf("| %s | %s |\n", strings.Join(verbs[shape], ", "), shape)
	}
	page = doctext.Wrap(page+jsonFoot, 100)
	const name = "../../docs/json.md"
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != page {
		t.Errorf("%s is not what the schemas say (%v); run: CAISSON_UPDATE=1 go test ./cmd/caisson -run TestOutput", name, err)
	}
}

// shapeOf is the outermost part of a schema.
type shapeOf struct {
	Type       string                     `json:"type"`
	Properties map[string]json.RawMessage `json:"properties"`
	Items      *struct {
		Type       string                     `json:"type"`
		Ref        string                     `json:"$ref"`
		Properties map[string]json.RawMessage `json:"properties"`
	} `json:"items"`
	Defs map[string]shapeOf `json:"$defs"`
}

func (s shapeOf) String() string {
	keys := func(m map[string]json.RawMessage) string {
		return "{" + strings.Join(slices.Sorted(maps.Keys(m)), ", ") + "}"
	}
	switch {
	case s.Type == "array" && s.Items != nil && s.Items.Ref != "":
		return "a list of " + keys(s.Defs[s.Items.Ref[strings.LastIndexByte(s.Items.Ref, '/')+1:]].Properties)
	case s.Type == "array" && s.Items != nil && s.Items.Type == "string":
		return "a list of texts"
	case s.Type == "array" && s.Items != nil:
		return "a list of " + keys(s.Items.Properties)
	case len(s.Properties) == 0:
		return "a map of texts"
	}
	return keys(s.Properties)
}
