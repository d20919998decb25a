// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// TestCommandLineIsDocumented holds docs/cli to the commands' own help.
// CAISSON_UPDATE=1 rewrites the pages.
func TestCommandLineIsDocumented(t *testing.T) {
	const dir = "../../docs/cli"
	version = "development"
	root := newApp(io.Discard, io.Discard).root()
	root.DisableAutoGenTag = true
	root.InitDefaultHelpCmd()
	fresh := t.TempDir()
	if err := doc.GenMarkdownTree(root, fresh); err != nil {
		t.Fatal(err)
	}
	pages, err := os.ReadDir(fresh)
	if err != nil || len(pages) < 15 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	made := map[string]bool{"caisson-agent.md": true} // its own test
	for _, p := range pages {
		made[p.Name()] = true
		got, err := os.ReadFile(filepath.Join(fresh, p.Name()))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, p.Name())
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(name); err != nil || !bytes.Equal(want, got) {
			t.Errorf("%s is not what --help says (%v); run: CAISSON_UPDATE=1 go test ./cmd/caisson -run TestCommandLine", name, err)
		}
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range old {
		if !made[p.Name()] {
			t.Errorf("%s/%s is of no command: delete it", dir, p.Name())
		}
	}
}

// TestEveryVerbHasAHeading: --help lists what has none at the end, below "Additional".
func TestEveryVerbHasAHeading(t *testing.T) {
	root := newApp(io.Discard, io.Discard).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if !root.ContainsGroup(c.GroupID) || c.GroupID == "" {
			t.Errorf("%s is below no heading", c.Name())
		}
	}
}

// TestEveryTextIsOfAVerb: a verb without a text does not start, see helpText; a text that no verb
// and no other text has would stay for ever.
func TestEveryTextIsOfAVerb(t *testing.T) {
	used := map[string]bool{}
	var note func(name string)
	note = func(name string) {
		data, err := help.ReadFile("help/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		used["help/"+name+".txt"] = true
		for _, word := range shared.FindAllString(string(data), -1) {
			note("shared/" + strings.Trim(word, "{}"))
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.HasParent() && c.Name() != "help" { // that text is of cobra
			note(strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "caisson "), " ", "_"))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newApp(io.Discard, io.Discard).root())
	err := fs.WalkDir(help, "help", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !used[name] {
			t.Errorf("%s is of no verb: delete it", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
