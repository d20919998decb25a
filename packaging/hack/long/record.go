// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// record is the file of a commit's results: a line for each test with time, result, seconds,
// package and name. Later runs add to it.
type record struct {
	commit string
	file   *os.File
}

// open returns the record of what is checked out. What is not committed counts for no commit.
func open(ctx context.Context, dir string) (*record, error) {
	commit, err := git(ctx, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return nil, err
	}
	changed, err := git(ctx, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		commit += dirty
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, commit+".txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &record{commit, f}, err
}

const dirty = "-dirty"

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (r *record) add(t test, result string, seconds float64) error {
	_, err := fmt.Fprintf(r.file, "%s %s %.0f %s\n", time.Now().UTC().Format(time.RFC3339), result, seconds, t)
	return err
}

// left returns the tests that passed neither at this commit nor at one from which this one
// differs in pages of documentation alone.
func (r *record) left(ctx context.Context, all []test) ([]test, error) {
	names, err := filepath.Glob(filepath.Join(filepath.Dir(r.file.Name()), "*.txt"))
	if err != nil {
		return nil, err
	}
	passed := map[string]bool{}
	for _, name := range names {
		commit := strings.TrimSuffix(filepath.Base(name), ".txt")
		if commit != r.commit && (strings.HasSuffix(commit, dirty) || strings.HasSuffix(r.commit, dirty) || !same(ctx, commit)) {
			continue
		}
		text, errRead := os.ReadFile(name)
		err = errors.Join(err, errRead)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 5 && f[1] == "pass" {
				passed[f[3]+" "+f[4]] = true
			}
		}
	}
	var left []test
	for _, t := range all {
		if !passed[t.String()] {
			left = append(left, t)
		}
	}
	return left, err
}

// same reports whether only pages differ between a commit and what is checked out; a commit
// that this repository does not have is another one.
func same(ctx context.Context, commit string) bool {
	return exec.CommandContext(ctx, "git", "diff", "--quiet", commit, "HEAD", "--", ".", ":!docs", ":!*.md").Run() == nil
}
