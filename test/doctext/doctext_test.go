// SPDX-License-Identifier: Apache-2.0

package doctext

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommands(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	text := "Say `caisson verify`, or `caisson-agent sync`.\n```sh\ncaisson plan site.yaml --from 'oci: out'   # ends with 3\nssh n1 sudo caisson status | jq\n" +
		"make && caisson build \\\n  site.yaml &\nothers caisson\n```\n"
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Commands("caisson", page)
	if err != nil {
		t.Fatal(err)
	}
	want := []Command{
		{"page.md:1", []string{"verify"}, true},
		{"page.md:3", []string{"plan", "site.yaml", "--from", "quoted"}, false},
		{"page.md:4", []string{"status"}, false},
		{"page.md:5", []string{"build", "site.yaml"}, false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
