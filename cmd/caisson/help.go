// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site"
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

// written is the output of man -o json.
type written struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func (a *app) manCommand() *cobra.Command {
	return verb("man", func(c *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		header := &doc.GenManHeader{Section: "1", Source: "caisson " + version, Manual: "caisson"}
		c.Root().DisableAutoGenTag = true
		if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
			return fmt.Errorf("write manual pages: %w", err)
		}
		entries, err := os.ReadDir(args[0])
		if err != nil {
			return err
		}
		w := written{Dir: args[0], Files: []string{}}
		for _, e := range entries {
			w.Files = append(w.Files, e.Name())
		}
		return a.show(w, func() { a.say("%d pages in %s", len(w.Files), w.Dir) })
	})
}

// version is set by the Makefile.
var version = "development"

func (a *app) versionCommand() *cobra.Command {
	return verb("version", func(*cobra.Command, []string) error {
		return a.show(map[string]string{"version": version, "go": runtime.Version()}, func() {
			cli.Printf(a.out, "caisson %s (%s)\n", version, runtime.Version())
		})
	})
}

// complete adds what a shell can offer for flags that many verbs have. A flag
// that a verb lacks is left out; nothing that goes wrong is said, because a shell
// has no place to show it.
func complete(c *cobra.Command) {
	offer(c, "output", func(*cobra.Command, []string) []string { return []string{"text", "json"} })
	offer(c, "node", nodeNames)
	offer(c, "layer", func(_ *cobra.Command, args []string) []string { return tags(args, oci.RepoLayer) })
}

func offer(c *cobra.Command, flag string, values func(*cobra.Command, []string) []string) {
	if c.Flag(flag) == nil {
		return
	}
	complete := func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		fits := slices.DeleteFunc(values(c, args), func(s string) bool { return !strings.HasPrefix(s, typed) })
		return fits, cobra.ShellCompDirectiveNoFileComp
	}
	_ = c.RegisterFlagCompletionFunc(flag, complete) // an error says that the flag has one already
}

// nodeNames are those of the site files among the arguments, else of the
// registry that they name.
func nodeNames(_ *cobra.Command, args []string) []string {
	if s, found := site.Parse(hostFiles{}, args...); found.Err() == nil && s != nil {
		return s.Fleet().Names()
	}
	return slices.DeleteFunc(tags(args, oci.RepoNode), func(tag string) bool {
		return strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") || strings.HasPrefix(tag, "keep-")
	})
}

// tags lists a repository of the first argument that is a layout or a registry.
func tags(args []string, repo string) []string {
	for _, ref := range args {
		parsed, err := oci.ParseRef(ref)
		if err != nil || !parsed.IsLayout() && !strings.Contains(ref, "/") {
			continue
		}
		r, err := (&access{}).existing(ref)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		list, err := r.Tags(ctx, repo)
		if cancel(); err == nil {
			return list
		}
	}
	return nil
}
