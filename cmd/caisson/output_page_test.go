// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/doctext"
)

const jsonHead = `# What is printed with -o json

Results are one document on standard output; talk is on standard error. A verb that fails prints an [error](schema/output/error.schema.json) there instead,
and ends with the exit code that is in it. Each verb has its JSON Schema (draft 2020-12), made from the type that is printed:

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

// checkOutputPage holds docs/json.md to the schemas that there are.
func checkOutputPage(t *testing.T) {
	t.Helper()
	var verbs []string
	for _, verb := range slices.Sorted(maps.Keys(results)) {
		if verb == "error" {
			continue // the head has it
		}
		name := strings.Replace(verb, "agent ", "caisson-agent ", 1)
		verbs = append(verbs, fmt.Sprintf("[`%s`](%s)", name, strings.TrimPrefix(schemaFile(verb), "../../docs/")))
	}
	page := doctext.Wrap(jsonHead+strings.Join(verbs, ", ")+".\n"+jsonFoot, 100)
	const name = "../../docs/json.md"
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != page {
		t.Errorf("%s has not the verbs that there are (%v); run: CAISSON_UPDATE=1 go test ./cmd/caisson -run TestOutput", name, err)
	}
}
