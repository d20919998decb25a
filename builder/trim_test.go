// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTrim(t *testing.T) {
	b := &build{options: Options{CacheDir: t.TempDir()}}
	now := time.Now()
	files := map[string]time.Duration{"steps/old/made.json": 40, "steps/new/made.json": 1, "debs/old.deb": 31, "debs/new.deb": 29, "bases/old.tar": 99, "apt/none/lists": 99}
	for name, days := range files {
		at := filepath.Join(b.options.CacheDir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		when := now.Add(-days * 24 * time.Hour)
		if err := os.Chtimes(at, when, when); err != nil {
			t.Fatal(err)
		}
	}
	use(filepath.Join(b.options.CacheDir, "bases/old.tar"))
	if err := b.trim(now.Add(-keepUnused)); err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{"steps/old/made.json": true, "debs/old.deb": true}
	for name := range files {
		if exists(filepath.Join(b.options.CacheDir, name)) == gone[name] {
			t.Errorf("%s: gone is %v, want %v", name, !gone[name], gone[name])
		}
	}
	if exists(filepath.Join(b.options.CacheDir, "steps/old")) {
		t.Error("an empty step folder stayed")
	}
}
