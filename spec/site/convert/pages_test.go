// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// imported is an example of a page: what is imported and as which kind, what comes out, and
// what is said.
var imported = regexp.MustCompile("(?ms)^```yaml import (\\w[\\w-]*)\n(.*?)^```\n\nbecomes\n\n```yaml\n(.*?)^```\n\nand says\n\n```text\n(.*?)^```\n")

// TestPages: an import makes the examples of docs/from. CAISSON_UPDATE=1
// writes them again.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/from/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		now := imported.ReplaceAllFunc(text, func(example []byte) []byte {
			found++
			m := imported.FindSubmatch(example)
			f := File{Name: "FILE", Data: m[2]}
			if k := kindOf(f); k == nil || k.name != string(m[1]) {
				t.Errorf("%s: %q is not told from its content", page, m[1])
			}
			r, err := Import([]File{f})
			if err != nil {
				t.Fatal(err)
			}
			var out, said bytes.Buffer
			if err := r.WriteYAML(&out); err != nil {
				t.Fatal(err)
			}
			for _, l := range r.Coverage {
				if l.Why != "" {
					fmt.Fprintf(&said, "%s:%d: %s: %s\n", l.File, l.Line, l.Text, l.Why)
				}
			}
			conf := out.String()
			for strings.HasPrefix(conf, "#") || strings.HasPrefix(conf, "apiVersion:") || strings.HasPrefix(conf, "kind:") {
				_, conf, _ = strings.Cut(conf, "\n")
			}
			return fmt.Appendf(nil, "```yaml import %s\n%s```\n\nbecomes\n\n```yaml\n%s```\n\nand says\n\n```text\n%s```\n", m[1], m[2], conf, said.Bytes())
		})
		if bytes.Count(text, []byte("```yaml import ")) != len(imported.FindAll(text, -1)) {
			t.Errorf("%s: an example does not have the form of %s", page, imported)
		}
		if !bytes.Equal(now, text) {
			if os.Getenv("CAISSON_UPDATE") == "" {
				t.Errorf("%s is not what an import prints: CAISSON_UPDATE=1 go test ./spec/site/convert -run TestPages", page)
			} else if err := os.WriteFile(page, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d examples are found: is the pattern right?", found)
	}
}
