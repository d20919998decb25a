// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	c := counts{packages: map[string]int{}, methods: map[string]int{}, found: map[string][]hit{}}
	src := "package p\n\ntype T[K any] struct { " + strings.Repeat("A, B int; ", 8) + "}\n" +
		"func NewT(a, b, c, d, e int, _ string) {}\n" +
		"func (t *T[K]) m(a, b, c, d, e, f int) {" + strings.Repeat("\n", 90) + "}\n"
	if err := c.file("a/p/p.go", []byte(src)); err != nil {
		t.Fatal(err)
	}
	c.sums()
	if c.lines != 95 || c.packages["a/p"] != 95 || c.methods["a/p.T"] != 1 {
		t.Errorf("%d lines, %v, methods %v", c.lines, c.packages, c.methods)
	}
	for row, want := range map[string]int{structs: 16, constructors: 6, parameters: 6, functions: 91, types: 0, large: 0, below: 0} {
		if got := c.found[row]; (len(got) == 1) != (want > 0) || want > 0 && got[0].n != want {
			t.Errorf("%s: %v, want %d", row, got, want)
		}
	}
}
