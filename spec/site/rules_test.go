// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/caisson-os/caisson/spec/site/report"
)

// head makes a Site of a part of one. TestRules puts it last, so that a row's
// lines count from 1.
const head = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\n"

const withLayer = "layer: {base: {debian: {suite: trixie}}}\n"

// TestRules runs the rows of testdata/rules: one file a kind, one section a row.
// A section is a part of a Site, followed by what is reported about it as
// comments "# line:column severity rule: path: message". Notes are left out; a
// row without comments is valid. Package test/contract carries every row that is
// valid on to the node and the builder. CAISSON_UPDATE=1 rewrites the comments.
func TestRules(t *testing.T) {
	for _, table := range ruleTables(t) {
		archive := readTable(t, table)
		for i, row := range archive.Files {
			text, want, blank := splitRow(string(row.Data))
			got := reported(text)
			archive.Files[i].Data = []byte(text + got + blank)
			if got != want && os.Getenv("CAISSON_UPDATE") == "" {
				t.Errorf("%s: %s:\n%s--- got\n%s--- want\n%s", filepath.Base(table), row.Name, text, got, want)
			}
		}
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.WriteFile(table, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func ruleTables(t testing.TB) []string {
	t.Helper()
	tables, err := filepath.Glob("testdata/rules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 10 {
		t.Fatalf("tables: %v", tables)
	}
	return tables
}

func readTable(t testing.TB, table string) *txtar.Archive {
	t.Helper()
	archive, err := txtar.ParseFile(table)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// row is a section of a table: a part of a Site and what is reported about it.
type row struct{ name, text, want string }

// ruleRows returns the rows of all tables.
func ruleRows(t testing.TB) (rows []row) {
	t.Helper()
	for _, table := range ruleTables(t) {
		for _, f := range readTable(t, table).Files {
			text, want, _ := splitRow(string(f.Data))
			rows = append(rows, row{f.Name, text, want})
		}
	}
	return rows
}

// splitRow returns the part of a Site, the comments that end it and the empty
// line after them.
func splitRow(data string) (text, want, blank string) {
	text = strings.TrimRight(data, "\n") + "\n"
	blank = strings.TrimPrefix(data, text)
	for {
		body := strings.TrimSuffix(text, "\n")
		last := body[strings.LastIndexByte(body, '\n')+1:]
		if !strings.HasPrefix(last, "# ") {
			return text, want, blank
		}
		text, want = strings.TrimSuffix(body, last), last+"\n"+want
	}
}

func reported(text string) string {
	_, r := Parse(files("site.yaml", text+head), "site.yaml")
	r.DropNotes()
	var b strings.Builder
	for _, p := range r.Problems {
		message := strings.TrimPrefix(p.String(), fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column))
		fmt.Fprintf(&b, "# %d:%d %s %s: %s\n", p.Line, p.Column, p.Severity, p.Rule, message)
	}
	return b.String()
}

// TestHints runs the mistakes of testdata/hints, which are those that people make who know
// the tools that a site replaces: each is said at its place, with a hint. CAISSON_UPDATE=1
// rewrites them.
func TestHints(t *testing.T) {
	const table = "testdata/hints/mistakes.txtar"
	archive := readTable(t, table)
	for i, row := range archive.Files {
		text, want, blank := splitRow(string(row.Data))
		_, r := Parse(files("site.yaml", text+head), "site.yaml")
		r.DropNotes()
		got := ""
		for _, p := range r.Problems {
			got += fmt.Sprintf("# %d:%d %s %s: %s\n", p.Line, p.Column, p.Severity, p.Rule, p.Hint)
			if p.Line == 0 || p.Hint == "" {
				t.Errorf("%s: %s: without a place or a hint", row.Name, p)
			}
		}
		if got == "" {
			t.Errorf("%s: nothing is said", row.Name)
		}
		archive.Files[i].Data = []byte(text + got + blank)
		if got != want && os.Getenv("CAISSON_UPDATE") == "" {
			t.Errorf("%s:\n%s--- got\n%s--- want\n%s", row.Name, text, got, want)
		}
	}
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(table, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(archive.Files) < 60 {
		t.Errorf("%d mistakes", len(archive.Files))
	}
}

// Notes are worth knowing and fail nothing.
func TestNotes(t *testing.T) {
	for text, want := range map[string]string{
		withLayer: "no-login",
		"conf: {exec: {e: {data: '#!/bin/sh', rerun_interval: infinity}}}\n": "infinity",
		"conf: {sysctl: {vm.overcommit_memory: 2}}\n":                        "dangerous",
		"conf: {uamlite: {users: [{user_name: u}]}}\n":                       "no-keys",
		"manifests: {daemonset_limits: false}\nconf: {limits: {}}\n":         "off",
	} {
		s, r := Parse(files("site.yaml", head+text), "site.yaml")
		r.Strict()
		if s == nil || len(r.Problems) != 1 || r.Problems[0].Rule != want || r.Problems[0].Severity != report.Note {
			t.Errorf("%s: %v, want a note of rule %s", text, r.Problems, want)
		}
	}
}
