// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// programs returns a directory with both programs of today, which are built once.
func programs(t testing.TB) (dir string) {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var build = sync.OnceValues(func() (string, error) {
	for _, args := range [][]string{
		{"build", "-o", buildDir, "."},
		{"test", "-c", "-o", buildDir + "/caisson", "../caisson"}, // by this name it is the program, whose keys cost less
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s: %w\n%s", args[0], err, out)
		}
	}
	return buildDir, nil
})

var buildDir string

// withPrograms runs all tests with a directory for [programs].
type withPrograms struct{ *testing.M }

func (m withPrograms) Run() (code int) {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) // a directory for temporary files
	buildDir = dir
	return m.M.Run()
}
