// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// TestPages runs every command of pages that promise it, with a registry in place of
// registry.example.org, and the fleet that testdata/pages.txtar makes published in oci:out and
// there.
func TestPages(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	const host = "registry.example.org"
	prologue, err := os.ReadFile("testdata/pages.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for page, atLeast := range map[string]int{"ref.md": 5, "airgap.md": 5, "install.md": 5, "network.md": 1} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		var script strings.Builder
		commands := 0
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(block[1]) {
				command, comment, _ := strings.Cut(strings.TrimSpace(line), "  #")
				if strings.Contains(command, host) {
					command = strings.ReplaceAll(command, host, "$REGISTRY") + " --ca $CA"
				}
				if strings.Contains(comment, "ends with 3") {
					script.WriteString("! ")
				}
				fmt.Fprintf(&script, "exec %s\n", command)
				commands++
			}
		}
		if commands < atLeast {
			t.Errorf("%s has %d commands", page, commands)
		}
		commandsThenFiles := strings.Replace(string(prologue), "\n-- ", "\n"+script.String()+"\n-- ", 1)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, page+".txtar"), []byte(commandsThenFiles), 0o644); err != nil {
			t.Fatal(err)
		}
		runWithRegistry(t, dir)
	}
}

// TestOperatePage: the script operate has every command of docs/operate.md, and does
// it.
func TestOperatePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	scriptDoes(t, "operate", string(page), 8)
}

// TestDrillPage: as much for the drill of an operator's key in docs/keys.md.
func TestDrillPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drill, _ := strings.Cut(string(page), "\n### An operator's key is stolen\n")
	drill, _, _ = strings.Cut(drill, "\n### ")
	scriptDoes(t, "drill_operator", drill, 6)
}

// scriptDoes wants each command of a page in a script.
func scriptDoes(t *testing.T, name, page string, atLeast int) {
	t.Helper()
	script, err := os.ReadFile("testdata/script/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	commands, shell := 0, false
	for line := range strings.Lines(page) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), "  #")
		command = strings.TrimSpace(command)
		switch {
		case strings.HasPrefix(command, "```"):
			shell = command == "```sh"
		case shell:
			commands++
			if !regexp.MustCompile(`(?m)^(! )?exec ` + regexp.QuoteMeta(command) + `$`).Match(script) {
				t.Errorf("no script does %q", command)
			}
		}
	}
	if commands < atLeast {
		t.Errorf("%d commands", commands)
	}
}
