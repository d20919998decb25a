// SPDX-License-Identifier: Apache-2.0

package undone

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// byItself are the rows whose tests take the protection away themselves.
var byItself = map[int]string{
	4: "TestFaults", 5: "TestFaults", 6: "TestFaults", 12: "TestFaults", 13: "TestFaults", 40: "TestFaults", 41: "TestFaults",
	43: "TestFaults", 47: "TestFaults", 48: "TestFaults", 38: "TestNoCheckIsVacuous", 50: "TestNoClockCheckIsVacuous",
}

// unprotected are the rows in which nothing protects the node, as the page says.
var unprotected = map[int]bool{53: true}

// TestTheCatalogueSaysWhatIsUndone: the last cell of each row of docs/faults.md is what is
// done here. CAISSON_UPDATE=1 writes it.
func TestTheCatalogueSaysWhatIsUndone(t *testing.T) {
	const name = repository + "/docs/faults.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	lines := strings.SplitAfter(string(page), "\n")
	for i, line := range lines {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !regexp.MustCompile(`^ \d+ $`).MatchString(cells[1]) {
			continue
		}
		row, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			t.Fatal(err)
		}
		seen[row] = true
		want := undoneIn(row, cells[4])
		if want == "" {
			t.Errorf("row %d: nothing takes its protection away", row)
		}
		if got := strings.TrimSpace(cells[5]); got != want {
			cells[5] = " " + want + " "
			lines[i] = strings.Join(cells, "|") + "\n"
			if os.Getenv("CAISSON_UPDATE") == "" {
				t.Errorf("row %d says %q, want %q", row, got, want)
			}
		}
	}
	for _, u := range table {
		if !seen[u.row] {
			t.Errorf("the catalogue has no row %d", u.row)
		}
	}
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// undoneIn is the last cell of a row whose tests are named in another.
func undoneIn(row int, tests string) string {
	if unprotected[row] {
		return "nothing protects"
	}
	if name := byItself[row]; name != "" {
		return "`" + name + "`"
	}
	var said []string
	for _, u := range table {
		if u.row != row {
			continue
		}
		text := u.without
		if !strings.Contains(tests, "`"+u.test+"`") {
			text += ": `" + u.test + "`"
		}
		said = append(said, text)
	}
	return strings.Join(said, "; ")
}
