// SPDX-License-Identifier: Apache-2.0

package undone

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// byItself are tests of rows that take the protection away themselves, or which test does.
var byItself = map[string]string{"TestFaults": "TestFaults", "TestLongBadDisks": "TestNoCheckIsVacuous", "TestWrongDatesEndNothing": "TestNoClockCheckIsVacuous"}

// unprotected are rows in which nothing protects the node, as the page says, by their test.
var unprotected = []string{"TestKernelLine"}

// TestTheCatalogueSaysWhatIsUndone: the last cell of each row of docs/faults.md is what is
// done here. CAISSON_UPDATE=1 writes it.
func TestTheCatalogueSaysWhatIsUndone(t *testing.T) {
	const name = repository + "/docs/faults.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tests := ""
	lines := strings.SplitAfter(string(page), "\n")
	for i, line := range lines {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !regexp.MustCompile(`^ \d+ $`).MatchString(cells[1]) {
			continue
		}
		row := strings.TrimSpace(cells[1])
		tests += cells[4]
		want := undoneIn(cells[4])
		if want == "" {
			t.Errorf("row %s: nothing takes its protection away", row)
		}
		if got := strings.TrimSpace(cells[5]); got != want {
			cells[5] = " " + want + " "
			lines[i] = strings.Join(cells, "|") + "\n"
			if os.Getenv("CAISSON_UPDATE") == "" {
				t.Errorf("row %s says %q, want %q", row, got, want)
			}
		}
	}
	for _, u := range table {
		if !strings.Contains(tests, "`"+u.named()+"`") {
			t.Errorf("no row of the catalogue names %s", u.named())
		}
	}
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// undoneIn is the last cell of a row, of the cell with its tests.
func undoneIn(tests string) string {
	names := func(test string) bool { return strings.Contains(tests, "`"+test+"`") }
	var said []string
	for _, u := range table {
		if !names(u.named()) {
			continue
		}
		text := u.without
		if !names(u.test) {
			text += ": `" + u.test + "`"
		}
		said = append(said, text)
	}
	if len(said) > 0 {
		return strings.Join(said, "; ")
	}
	for test, by := range byItself {
		if names(test) {
			return "`" + by + "`"
		}
	}
	if slices.ContainsFunc(unprotected, names) {
		return "nothing protects"
	}
	return ""
}
