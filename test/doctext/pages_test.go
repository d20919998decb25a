// SPDX-License-Identifier: Apache-2.0

package doctext

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	top   = "../.."
	words = 3000 // of a page, so that it is read to its end
)

// pages returns every page but those of verbs: name below the top, and text.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/formats/*.md", "docs/from/*.md", "docs/adr/*.md", "docs/benchmark/goals.md", "examples/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %q, %v", pattern, names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			short, err := filepath.Rel(top, name)
			if err != nil {
				t.Fatal(err)
			}
			out[short] = string(text)
		}
	}
	return out
}

// TestWidth: prose is wrapped. CAISSON_UPDATE=1 wraps it.
func TestWidth(t *testing.T) {
	for name, text := range pages(t) {
		want := Wrap(text, Width)
		if want == text {
			continue
		}
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.WriteFile(filepath.Join(top, name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Errorf("%s is not wrapped at %d characters; run: CAISSON_UPDATE=1 go test ./test/doctext\n%s", name, Width, cmp.Diff(text, want))
	}
}

// TestLength: no page is a book.
func TestLength(t *testing.T) {
	for name, text := range pages(t) {
		if n := len(strings.Fields(text)); n > words {
			t.Errorf("%s has %d words, want %d at most", name, n, words)
		}
	}
}

// TestLinks: each link within the repository leads to a file, and to a heading that it has.
func TestLinks(t *testing.T) {
	all, checked := pages(t), 0
	for name, text := range all {
		for _, target := range Links(text) {
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			to := name
			if file != "" {
				to = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(top, to)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s does not exist", name, target)
				continue
			}
			if page, ok := all[to]; ok && anchor != "" && !Anchors(page)[anchor] {
				t.Errorf("%s: %s has no heading for #%s", name, to, anchor)
			}
			checked++
		}
	}
	if checked < 200 {
		t.Errorf("%d links are found: is the pattern right?", checked)
	}
}

// TestComparisons: each reason that the README gives against another tool has a link to where that is shown,
// and so has what it says for it.
func TestComparisons(t *testing.T) {
	_, table, _ := strings.Cut(pages(t)["README.md"], "\n| instead |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[2:]
	if len(rows) < 7 {
		t.Fatalf("%d rows are found: is the pattern right?", len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(row, " | ")
		if len(cells) != 3 || len(Links(cells[1])) == 0 {
			t.Errorf("a cell is without a link: %s", row)
		}
		for claim := range strings.SplitSeq(cells[len(cells)-1], "; ") {
			if len(Links(claim)) == 0 {
				t.Errorf("no link shows that %q", claim)
			}
		}
	}
}

// TestPlaces: what a page says of places is so: a link whose words are a page's name leads
// to that page, and a heading that is named without a link is one of the same page.
func TestPlaces(t *testing.T) {
	var (
		named  = regexp.MustCompile(`\[([\w-]+\.md)\]\(([^)#]+)`)
		quoted = regexp.MustCompile(`\b(?:see|under)\s+(?:\*([A-Z][^*]*)\*|"([A-Z][^"]*)")`)
	)
	for name, text := range pages(t) {
		text = strings.Join(prose(text), "\n")
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if m[1] != filepath.Base(m[2]) {
				t.Errorf("%s: %s leads to %s", name, m[1], m[2])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			if title := m[1] + m[2]; !Anchors(text)[anchor(title)] {
				t.Errorf("%s: %q has no heading %q: make it a link", name, m[0], title)
			}
		}
	}
}

// TestIndex: docs/README.md lists each page once, in four groups.
func TestIndex(t *testing.T) {
	const index = "docs/README.md"
	all := pages(t)
	times := map[string]int{}
	for _, target := range Links(all[index]) {
		times[filepath.Join("docs", target)]++
	}
	for name := range all {
		if filepath.Dir(name) == "docs" && name != index && times[name] != 1 {
			t.Errorf("%s lists %s %d times, want once", index, name, times[name])
		}
	}
	if n := strings.Count(all[index], "\n## "); n != 4 {
		t.Errorf("%s has %d groups, want 4", index, n)
	}
}

func TestWrap(t *testing.T) {
	const text = "# A heading that is longer than the width\n\none two three four five\n- an item that is long\n  and goes on\n\n| a | table that is longer than the width |\n\n```sh\na line of code that is longer\n```\nuse `caisson plan site.yaml` now - 3. ever\n"
	const want = "# A heading that is longer than the width\n\none two three\nfour five\n- an item that\n  is long and\n  goes on\n\n| a | table that is longer than the width |\n\n```sh\na line of code that is longer\n```\nuse\n`caisson plan site.yaml`\nnow - 3. ever\n"
	if diff := cmp.Diff(want, Wrap(text, 15)); diff != "" {
		t.Error(diff)
	}
	if again := Wrap(want, 15); again != want {
		t.Errorf("wrapped twice: %s", cmp.Diff(want, again))
	}
}

func TestAnchors(t *testing.T) {
	const text = "# What is read of an image\n```\n# a comment\n```\n## `kernel.args`, and [more](x.md)\n"
	if diff := cmp.Diff(map[string]bool{"what-is-read-of-an-image": true, "kernelargs-and-more": true}, Anchors(text)); diff != "" {
		t.Error(diff)
	}
}

// TestRoads: of each road of install.md, and each kind of machine, the test that walks it is named, or
// that none does.
func TestRoads(t *testing.T) {
	_, matrix, _ := strings.Cut(pages(t)["docs/install.md"], "\n| road |")
	roads := 0
	for line := range strings.Lines(matrix) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") {
			if roads > 0 || !strings.Contains(line, "|") {
				break
			}
			continue
		}
		if roads++; len(cells) != 5 {
			t.Errorf("%d cells: %s", len(cells), line)
		}
		for _, cell := range cells[1:] {
			if cell = strings.TrimSpace(cell); cell != "–" && cell != "not walked" && !walkedBy.MatchString(cell) {
				t.Errorf("%q names no test: %s", cell, line)
			}
		}
	}
	if roads < 10 {
		t.Errorf("%d roads", roads)
	}
}

var walkedBy = regexp.MustCompile("^`Test[A-Z]\\w+`$")
