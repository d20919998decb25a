// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
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
// help, in a file that has "_" between the words.
func verb(words string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
	text, example, _ := strings.Cut(helpText(strings.ReplaceAll(words, " ", "_")), "\n\nExample:\n")
	use, text, _ := strings.Cut(text, "\n")
	short, long, _ := strings.Cut(text, "\n\n")
	return &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: args, RunE: run}
}

// group returns a verb that others stand below.
func group(words string, verbs ...*cobra.Command) *cobra.Command {
	c := verb(words, nil, nil)
	c.AddCommand(verbs...)
	return c
}
