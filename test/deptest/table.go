// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tail begins what a first sentence adds to what a package does.
var tail = regexp.MustCompile(`[:;] |, (?:as|see|so|which|for|of which|of|in|with|from|by|before|out|at|and) |\.$`)

// PackagesPage returns the page of docs that lists the floors of folders and the packages
// that programs link, each with what its own comment says first that it does.
func PackagesPage(all []Package, floors []Floor) string {
	var b strings.Builder
	b.WriteString("# Packages\n\nMade by a test from the packages' own comments: `go doc PACKAGE` has all of each. [The map](map.svg) shows who imports whom.\n" +
		"[The rules](../test/deptest/rules_test.go) say, with a reason each, what a package may depend on and who may import it.\n\n" +
		"## Floors\n\nA folder imports those on the floors below its own. From the top down:\n\n| folders | why they stand above the next |\n|---|---|\n")
	for _, f := range slices.Backward(floors) {
		fmt.Fprintf(&b, "| %s | %s |\n", code(f.Folders), f.Why)
	}
	b.WriteString("\nEverything may import " + code(Leaves) + ": they spell, or hand on, what all must alike.\n\n## What each does\n\nThose below `test` are left out: no program links them.\n\n")
	for _, p := range all {
		if p.Doc == "" || !strings.HasPrefix(p.ImportPath, Module+"/") || folder(p.own()) == "test" {
			continue
		}
		does := strings.SplitN(p.Doc, " ", 3)[2] // after "Package name"
		fmt.Fprintf(&b, "- `%s`: %s\n", p.own(), tail.Split(does, 2)[0])
	}
	return b.String()
}

func code(list []string) string { return "`" + strings.Join(list, "`, `") + "`" }
