// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/test/doctext"
)

// TestWhatPagesSayCanBeTyped: every call of caisson on a page is one of a verb that is
// there, with flags that it has; in a block of code its arguments are right, too.
func TestWhatPagesSayCanBeTyped(t *testing.T) {
	pages, err := doctext.Pages("../..")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := doctext.Commands("caisson", pages...)
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) < 150 {
		t.Errorf("%d calls on %d pages, more are there", len(commands), len(pages))
	}
	for _, said := range commands {
		if strings.Contains(strings.Join(said.Words, " "), "…") && said.Inline || said.Words[0] == "VERB" {
			continue
		}
		c, rest, err := taken(said.Words)
		if c == c.Root() && !strings.HasPrefix(said.Words[0], "-") {
			t.Errorf("%s: there is no verb in %q", said.Place, said.Words)
			continue
		}
		if said.Inline { // a sentence leaves out what it is not about
			err = nil
		} else if err == nil && !c.Runnable() {
			err = errors.New("it does nothing by itself")
		}
		if err != nil {
			t.Errorf("%s: %q: %v", said.Place, said.Words, err)
		}
		for _, word := range rest {
			name, isFlag := strings.CutPrefix(word, "--")
			name, _, _ = strings.Cut(name, "=")
			if isFlag && name != "help" && name != "version" && c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s: %q: %s has no flag --%s", said.Place, said.Words, c.CommandPath(), name)
			}
		}
	}
}

// taken returns the command that words call and what follows it, and why the command
// line does not take them.
func taken(words []string) (*cobra.Command, []string, error) {
	root := newApp(io.Discard, io.Discard).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	c, rest, err := root.Find(words)
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil && c.Args != nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err == nil {
		err = c.ValidateRequiredFlags()
	}
	return c, rest, err
}
