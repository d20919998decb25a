// SPDX-License-Identifier: Apache-2.0

package refusal_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/refusal"
)

// TestCodesAreDocumented holds docs/refusals.md to the table in the code.
// CAISSON_UPDATE=1 rewrites it.
func TestCodesAreDocumented(t *testing.T) {
	const page = "../../docs/refusals.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| code | what was seen |\n|---|---|\n")
	for _, c := range refusal.Codes() {
		fmt.Fprintf(&table, "| `%s` | %s |\n", c, refusal.Means(c))
	}
	part := regexp.MustCompile(`\| code \| what was seen \|\n(\|.*\n)*`)
	if !part.Match(text) {
		t.Fatal("docs/refusals.md has no table of codes")
	}
	want := part.ReplaceAllLiteral(text, []byte(table.String()))
	if string(text) == string(want) {
		return
	}
	if os.Getenv("CAISSON_UPDATE") == "" {
		t.Fatal("docs/refusals.md has another table of codes; run: CAISSON_UPDATE=1 go test ./spec/refusal")
	}
	if err := os.WriteFile(page, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCodeHelps(t *testing.T) {
	for _, c := range refusal.Codes() {
		r := refusal.New(c, "x")
		if refusal.Means(c) == "" || r.Hint() == "" {
			t.Errorf("code %s says nothing or gives no hint", c)
		}
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(string(c)) {
			t.Errorf("code %q is not lower case with dashes", c)
		}
	}
}

// hinted is a cause that says what to do.
type hinted struct{ error }

func (hinted) Hint() string { return "of the cause" }

func TestHintOfTheCause(t *testing.T) {
	own := refusal.New(refusal.Overlay, "x").Hint()
	cause := hinted{io.ErrUnexpectedEOF}
	for want, r := range map[string]*refusal.Refusal{
		"of the cause": refusal.New(refusal.Overlay, "a: %w", cause),
		own:            refusal.New(refusal.Overlay, "a: %w", refusal.New(refusal.Digest, "b: %w", io.ErrUnexpectedEOF)),
	} {
		if got := r.Hint(); got != want {
			t.Errorf("%v: %q, want %q", r, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	err := fmt.Errorf("layer: %w", refusal.New(refusal.Digest, "cause: %w", io.ErrUnexpectedEOF))
	if refusal.Of(err) != refusal.Digest || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Of(%v) = %q; want the code and the cause", err, refusal.Of(err))
	}
	if refusal.Of(io.EOF) != "" || refusal.Of(nil) != "" {
		t.Error("an error that is not a refusal has a code")
	}
}
