// SPDX-License-Identifier: Apache-2.0

// Package hack holds the scripts behind the Makefile; its tests see that the
// checks among them can fail.
package hack

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func script(t *testing.T, env []string, name string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput() // the code tells
	return string(out), cmd.ProcessState.ExitCode()
}

func TestErrcheck(t *testing.T) {
	said, code := script(t, nil, "./errcheck", "./hack/testdata/errors")
	if code != 1 || strings.Count(said, "errors.go:") != 3 || strings.Contains(said, "with a reason") {
		t.Errorf("code %d, want three lines without a reason:\n%s", code, said)
	}
}

func TestVulncheck(t *testing.T) {
	for _, test := range []struct {
		name, db, pkg string
		code          int
		want          string
	}{
		{"a vulnerability is reached", "file://" + wd(t) + "/testdata/vulndb", "./internal/cli", 1, "GO-2026-0001"},
		{"one that is not reached", "file://" + wd(t) + "/testdata/vulndb", "./internal/paths", 0, "vulncheck: no known vulnerability is reached"},
		{"the database cannot be reached", "http://127.0.0.1:1", "./internal/cli", 0, "vulncheck: NOT CHECKED"},
		{"a package that does not compile", "file://" + wd(t) + "/testdata/vulndb", "./internal/none", 1, "internal/none"},
	} {
		said, code := script(t, []string{"VULNDB=" + test.db}, "./vulncheck", test.pkg)
		if code != test.code || !strings.Contains(said, test.want) {
			t.Errorf("%s: code %d, want %d and %q:\n%s", test.name, code, test.code, test.want, said)
		}
	}
}

func wd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
