// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/test/doctext"
)

// TestWhatPagesSayCanBeTyped: every call of caisson-agent on a page is one of a verb
// that is there, with flags that its help has.
func TestWhatPagesSayCanBeTyped(t *testing.T) {
	pages, err := doctext.Pages("../..")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := doctext.Commands("caisson-agent", pages...)
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) < 40 {
		t.Errorf("%d calls on %d pages, more are there", len(commands), len(pages))
	}
	for _, said := range commands {
		name, rest := said.Words[0], said.Words[1:]
		if strings.HasPrefix(name, "-") || slices.Contains([]string{"help", "init", process.LaunchVerb, "VERB", "…"}, name) {
			continue
		}
		if !slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == name }) {
			t.Errorf("%s: there is no verb in %q", said.Place, said.Words)
			continue
		}
		var help bytes.Buffer
		if err := dispatch(context.Background(), &app{out: &help, err: &help}, []string{name, "--help"}); err != nil {
			t.Fatal(err)
		}
		for _, word := range rest {
			flag, _, _ := strings.Cut(word, "=")
			if strings.HasPrefix(flag, "-") && flag != "--help" && !strings.Contains(help.String(), "\n  "+flag+" ") {
				t.Errorf("%s: %q: the verb has no flag %s", said.Place, said.Words, flag)
			}
		}
	}
}
