// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"fmt"
	"slices"
	"strings"
)

// Table returns docs/packages.md: every package with the first sentence of its
// own comment, the floors of folders and the rules that hold for packages.
func Table(all []Package, floors []Floor, rules []Rule) string {
	var b strings.Builder
	b.WriteString("# Packages\n\nMade by a test from the packages' own comments and from the import rules in `internal/deptest`; [the map](map.svg) shows who imports whom.\n\n" +
		"| package | is |\n|---|---|\n")
	for _, p := range all {
		if p.Doc == "" || !strings.HasPrefix(p.ImportPath, Module+"/") {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", p.own(), strings.ReplaceAll(p.Doc, "|", "\\|"))
	}
	b.WriteString("\n## Floors\n\nA folder imports those on the floors below its own. From the top down:\n\n| folders | why they stand above the next |\n|---|---|\n")
	for _, f := range slices.Backward(floors) {
		fmt.Fprintf(&b, "| %s | %s |\n", code(f.Folders), f.Why)
	}
	b.WriteString("\n## Rules\n\n| packages | may depend on | imported only by |\n|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Packages, depends(r), importedBy(r))
	}
	return b.String()
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
