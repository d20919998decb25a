// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"fmt"
	"slices"
	"strings"
)

// Tables returns the pages of docs that list the packages, each with the first sentence
// of its own comment: those of a node, those of a fleet, the others, the floors of
// folders and the rules that hold for packages.
func Tables(all []Package, floors []Floor, rules []Rule) map[string]string {
	const made = "Made by a test from the packages' own comments and from the import rules in `test/deptest`.\n\n" +
		"[The map](map.svg) shows who imports whom.\n\n"
	const head = "| package | is |\n|---|---|\n"
	var others, node, fleet, rows, agent strings.Builder
	others.WriteString("# Packages\n\n" + made + "Further pages: [of the agent](packages-node.md), [of registries and fleets](packages-fleet.md),\n[import rules](import-rules.md).\n\n" + head)
	fleet.WriteString("# Packages of registries and fleets\n\n" + made + head)
	node.WriteString("# Packages of the agent\n\n" + made + head)
	for _, p := range all {
		if p.Doc == "" || !strings.HasPrefix(p.ImportPath, Module+"/") {
			continue
		}
		b := &others
		switch room, _, _ := strings.Cut(p.own(), "/"); room {
		case "bootagent":
			b = &node
		case "fleet", "oci", "builder/release", "media/netboot", "media", "sandbox":
			b = &fleet
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", p.own(), strings.ReplaceAll(p.Doc, "|", "\\|"))
	}
	rows.WriteString("# Import rules\n\n" + made + "## Floors\n\nA folder imports those on the floors below its own. From the top down:\n\n| folders | why they stand above the next |\n|---|---|\n")
	for _, f := range slices.Backward(floors) {
		fmt.Fprintf(&rows, "| %s | %s |\n", code(f.Folders), f.Why)
	}
	const ruled = "| packages | may depend on | imported only by |\n|---|---|---|\n"
	rows.WriteString("\n## Rules\n\nEverything may import " + code(Leaves) + ": they spell what all must spell alike.\nThose of the agent have [a page of their own](import-rules-node.md).\n\n" + ruled)
	agent.WriteString("# Import rules of the agent\n\n" + made + "[Import rules](import-rules.md) has the floors, and the rules of the rest.\n\n" + ruled)
	for _, r := range rules {
		b := &rows
		if strings.HasPrefix(r.Packages, "bootagent") {
			b = &agent
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", r.Packages, depends(r), importedBy(r))
	}
	return map[string]string{"packages.md": others.String(), "packages-node.md": node.String(), "packages-fleet.md": fleet.String(), "import-rules.md": rows.String(), "import-rules-node.md": agent.String()}
}

func depends(r Rule) string {
	var parts []string
	switch {
	case r.Only != nil && len(r.Only) == 0:
		parts = append(parts, "no other package of caisson: "+r.Why)
	case r.Only != nil:
		parts = append(parts, code(r.Only)+": "+r.Why)
	case r.Stdlib:
		parts = append(parts, "the standard library: "+r.Why)
	}
	if r.Apart != "" {
		parts = append(parts, "not each other: "+r.Apart)
	}
	return strings.Join(parts, "; ")
}

func importedBy(r Rule) string {
	switch {
	case r.By == nil:
		return ""
	case len(r.By) == 0:
		return "nobody: " + r.ByWhy
	}
	return code(r.By) + ": " + r.ByWhy
}

func code(list []string) string { return "`" + strings.Join(list, "`, `") + "`" }
