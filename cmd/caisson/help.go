// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// help has a text for each verb, from which --help, manual pages and docs/cli are made: a line of
// usage, a line that says what the verb does, then all that there is to say of it, then examples.
//
//go:embed help
var help embed.FS

// shared is a paragraph that several texts have: {signers} stands for help/shared/signers.txt.
var shared = regexp.MustCompile(`\{[a-z]+\}`)

// helpText returns a text, with the paragraphs that it shares with others.
func helpText(name string) string {
	data, err := help.ReadFile("help/" + name + ".txt")
	cobra.CheckErr(err) // of a verb without a text no test passes
	return shared.ReplaceAllStringFunc(strings.TrimSuffix(string(data), "\n"), func(word string) string {
		return helpText("shared/" + strings.Trim(word, "{}"))
	})
}

// verb returns the verb that is typed by these words after the program's name. Its text is in
// help, in a file that has "_" between the words. It takes the arguments of its line of usage.
func verb(words string, run func(*cobra.Command, []string) error) *cobra.Command {
	text, example, _ := strings.Cut(helpText(strings.ReplaceAll(words, " ", "_")), "\n\nExample:\n")
	use, text, _ := strings.Cut(text, "\n")
	short, long, _ := strings.Cut(text, "\n\n")
	_, args, _ := strings.Cut(use, " ")
	return &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: takes(args), RunE: run}
}

// takes refuses other arguments than a line of usage has, up to a choice in brackets: those in
// square ones may be left out, and one with "…" may come again. Flags are not arguments.
func takes(usage string) cobra.PositionalArgs {
	usage, _, _ = strings.Cut(usage, "(")
	var must []string
	most, again := 0, false
	for words := strings.Fields(usage); len(words) > 0; words = words[1:] {
		if strings.HasPrefix(words[0], "--") || strings.HasPrefix(words[0], "[--") {
			words = words[1:] // and its value
			continue
		}
		if !strings.HasPrefix(words[0], "[") {
			must = append(must, strings.TrimSuffix(words[0], "…"))
		}
		most, again = most+1, again || strings.Contains(words[0], "…")
	}
	if most == 0 {
		return cobra.NoArgs
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(must):
			return fmt.Errorf("%s is missing", must[len(args)])
		case len(args) > most && !again:
			return fmt.Errorf("%q is an argument too many", args[most])
		}
		return nil
	}
}

// group returns a verb that others stand below.
func group(words string, verbs ...*cobra.Command) *cobra.Command {
	c := verb(words, nil)
	c.AddCommand(verbs...)
	return c
}
