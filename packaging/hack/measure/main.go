// SPDX-License-Identifier: Apache-2.0

// Command measure counts what shows whether the code gets simpler: lines, packages, large
// types and functions. It reads the files that git knows, in the working tree. Product code
// is Go without tests, and without folders named test or hack.
//
//	go run ./packaging/hack/measure -list
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	list := flag.Bool("list", false, "print the names behind each number")
	flag.Parse()
	if err := measure(*list); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func measure(list bool) error {
	out, err := exec.Command("git", "ls-files", "*.go", "docs/*.md").Output()
	if err != nil {
		return fmt.Errorf("list the files that git knows: %w", err)
	}
	c := counts{packages: map[string]int{}, methods: map[string]int{}, found: map[string][]hit{}}
	for _, name := range strings.Fields(string(out)) {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(name, ".md"):
			if strings.Count(name, "/") == 1 { // the pattern's "*" matches "/", too
				c.words += len(bytes.Fields(data))
			}
		case strings.HasSuffix(name, "_test.go") || isTest(name):
			c.testLines += bytes.Count(data, []byte("\n"))
		case !strings.Contains("/"+name, "/hack/"):
			if err := c.file(name, data); err != nil {
				return err
			}
		}
	}
	c.sums()
	if err := c.complexity(); err != nil {
		return err
	}
	c.print(list)
	return nil
}

func isTest(name string) bool {
	return strings.Contains("/"+name, "/test/") || strings.Contains(name, "/testdata/")
}
