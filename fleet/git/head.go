// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec/rules"
)

// headTime is what two questions about a working tree may take: nobody waits for a note longer.
const headTime = 10 * time.Second

// Head returns the commit that the working tree around dir has checked out, with a "+" behind it
// where tracked files below dir differ from it; "" where dir is in no repository.
func Head(ctx context.Context, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil || !inRepository(dir) {
		return "", err
	}
	ctx, end := context.WithTimeout(ctx, headTime)
	defer end()
	ask := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", slices.Concat([]string{"-C", dir}, settings(), args)...)
		cmd.Env, cmd.WaitDelay = environment(), time.Second
		said := &tail{}
		cmd.Stderr = said
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, said)
		}
		return strings.TrimSpace(string(out)), nil
	}
	id, err := ask("rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return "", err
	}
	if err := rules.GitCommit(id); err != nil {
		return "", err
	}
	differs, err := ask("status", "--porcelain", "--untracked-files=no", "--", ".")
	if differs != "" {
		id += "+"
	}
	return id, err
}

func inRepository(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if filepath.Dir(dir) == dir {
			return false
		}
		dir = filepath.Dir(dir)
	}
}
