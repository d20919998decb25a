// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// header is the head of a program without segments. Kind 2 is an executable,
// machine 0x3e is amd64, 0xb7 arm64.
func header(kind, machine string) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + kind + "\x00" + machine + "\x00\x01" + strings.Repeat("\x00", 43)
}

func program(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCheckAgent(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{header("\x02", "\x3e"), ""},
		{header("\x02", "\xb7"), "it is for EM_AARCH64, the layer for amd64"},
		{header("\x01", "\x3e"), "not an executable but ET_REL"},
		{"#!/bin/sh\n", "not an ELF executable"},
		{"", "not an ELF executable"},
	} {
		name := program(t, t.TempDir(), "agent", c.text)
		if err := CheckAgent(name, "amd64"); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.20q: %v, want %q", c.text, err, c.want)
		}
	}
}

// One that is named counts, of several the one that fits; else what is beside the program does.
func TestFindAgent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	amd, arm, dir := header("\x02", "\x3e"), header("\x02", "\xb7"), t.TempDir()
	one, two := program(t, t.TempDir(), "a", amd), program(t, t.TempDir(), "b", arm)
	program(t, dir, "caisson-agent", amd)
	for _, c := range []struct {
		named      []string
		arch, want string
	}{
		{nil, "amd64", filepath.Join(dir, "caisson-agent")},
		{nil, "arm64", ""},
		{[]string{one}, "arm64", one},
		{[]string{one, two}, "arm64", two},
		{[]string{one, two}, "amd64", one},
		{[]string{one, one}, "arm64", ""},
		{[]string{one, filepath.Join(dir, "none")}, "arm64", ""},
	} {
		if got, err := FindAgent(c.named, dir, c.arch); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q for %s: %q, %v; want %q", c.named, c.arch, got, err, c.want)
		}
	}
	own := program(t, dir, "caisson-agent-arm64", arm)
	if got, err := FindAgent(nil, dir, "arm64"); got != own || err != nil {
		t.Errorf("beside the other: %q, %v", got, err)
	}
	t.Setenv("PATH", dir)
	if got, err := FindAgent(nil, t.TempDir(), "arm64"); got != own || err != nil {
		t.Errorf("on PATH: %q, %v", got, err)
	}
}
