// SPDX-License-Identifier: Apache-2.0

// Package deptest holds the import rules as tests with reasons: which package
// may never come to depend on which, and why. It asks the go tool, so that what
// it sees is what is linked. Only tests import it.
package deptest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Module is the path of this module.
const Module = "github.com/caisson-os/caisson"

// Rule forbids what a set of packages may depend on, directly or not.
type Rule struct {
	Packages string            // go list pattern below the module, for example "spec/..."
	Only     []string          // when given, the only packages of this module it may depend on; itself is always allowed
	Stdlib   bool              // no module but this one
	Banned   map[string]string // import path or prefix ending in "/" → why
}

type listed struct {
	ImportPath string
	Deps       []string
	Standard   bool
}

// Check fails t for every dependency that the rule forbids.
func Check(t *testing.T, r Rule) {
	t.Helper()
	packages := List(t, "./"+r.Packages)
	if len(packages) == 0 {
		t.Fatalf("%s matches no package", r.Packages)
	}
	for _, p := range packages {
		for _, dep := range p.Deps {
			own := dep == Module || strings.HasPrefix(dep, Module+"/")
			switch {
			case own && r.Only != nil && !allowed(r, packages, strings.TrimPrefix(dep, Module+"/")):
				t.Errorf("%s depends on %s, which is not among what it may use: %v", p.ImportPath, dep, r.Only)
			case !own && r.Stdlib && strings.Contains(strings.Split(dep, "/")[0], "."):
				t.Errorf("%s depends on %s, but may use only the standard library", p.ImportPath, dep)
			}
			for banned, why := range r.Banned {
				if dep == banned || strings.HasSuffix(banned, "/") && strings.HasPrefix(dep, banned) {
					t.Errorf("%s depends on %s: %s", p.ImportPath, dep, why)
				}
			}
		}
	}
}

func allowed(r Rule, self []listed, dep string) bool {
	if slices.ContainsFunc(self, func(p listed) bool { return p.ImportPath == Module+"/"+dep }) {
		return true
	}
	return slices.ContainsFunc(r.Only, func(only string) bool {
		return dep == only || strings.HasSuffix(only, "/...") && strings.HasPrefix(dep+"/", strings.TrimSuffix(only, "..."))
	})
}

// List runs go list from the module's root.
func List(t *testing.T, patterns ...string) []listed {
	t.Helper()
	out, err := Go("list", append([]string{"-json=ImportPath,Deps,Standard"}, patterns...)...)
	if err != nil {
		t.Fatal(err)
	}
	var packages []listed
	d := json.NewDecoder(strings.NewReader(out))
	for {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// Go runs the go tool in the module's root, for linux/amd64 without cgo as the
// programs are built.
func Go(verb string, args ...string) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", append([]string{verb}, args...)...)
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}
