// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"os"
	"strings"
	"testing"
)

// The same question to the same indexes is answered from what was kept; another
// question, or other indexes, are asked.
func TestDescribeAsksOnce(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	a.add("app", "1.0")
	s := a.updated()
	debs, err := s.Resolve(context.Background(), Request{Install: []string{"lib", "app"}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(debs []Deb) string {
		t.Helper()
		text, err := s.describe(context.Background(), debs)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := ask(debs)
	if !strings.Contains(first, "Package: lib") || !strings.Contains(first, "Package: app") {
		t.Fatalf("two packages are described so: %q", first)
	}
	kept, err := os.ReadFile(s.path("described"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("described"), append(kept, "kept"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := ask(debs); got != first+"kept" {
		t.Errorf("the same question was asked again, or answered otherwise: %q", got)
	}
	if got := ask(debs[:1]); strings.HasSuffix(got, "kept") || got == first {
		t.Errorf("another question got the kept answer: %q", got)
	}
	ask(debs)
	a.add("new", "1.0")
	if err := s.Update(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("status"), []byte("stale"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := ask(debs); got != first {
		t.Errorf("new indexes: got %q, want %q", got, first)
	}
	if status, err := os.ReadFile(s.path("status")); err != nil || len(status) != 0 {
		t.Errorf("new indexes were not asked: status is %q (%v)", status, err)
	}
}
