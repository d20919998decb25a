// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFaultCatalogue: each row of docs/faults.md has a number, an end and a test that breaks
// it; that the test is there TestNamedTestsExist holds. What undoes its protection is held by
// package test/undone.
func TestFaultCatalogue(t *testing.T) {
	page, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !regexp.MustCompile(`^ \d+ $`).MatchString(cells[1]) {
			continue
		}
		rows++
		if cells[1] != fmt.Sprintf(" %d ", rows) {
			t.Errorf("row %d has the number%s", rows, cells[1])
		}
		if strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" || !regexp.MustCompile("^ [PNM] `Test").MatchString(cells[4]) {
			t.Errorf("row %d lacks a fault, an end or a test: %s", rows, line)
		}
	}
	if rows < 55 {
		t.Errorf("%d rows, want 55", rows)
	}
}
