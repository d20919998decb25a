// SPDX-License-Identifier: Apache-2.0

// Package deptest holds the import rules as tests with reasons: what a package
// may depend on, and who may import it. It asks the go tool, so that what it
// sees is what is linked. Only tests import it.
package deptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Module is the path of this module.
const Module = "github.com/caisson-os/caisson"

// Rule says what a set of packages may depend on, directly or not, and which
// packages may import it. Patterns are relative to the module; one that ends in
// "/..." includes what is below it.
type Rule struct {
	Packages string            // for example "spec/..."
	Only     []string          // when not nil, the only packages of this module it may depend on, besides its own
	Stdlib   bool              // no module but this one
	Why      string            // the reason for Only and Stdlib
	Banned   map[string]string // import path, or prefix ending in "/", and why
	Apart    string            // when given, packages of this rule never import each other, and why
	Shared   []string          // what packages that are Apart may import all the same
	By       []string          // when not nil, the only packages of this module that may import it directly
	ByWhy    string            // the reason for By
}

// Leaves are packages that every package may depend on, whatever its rule says: they spell
// what all must spell alike, and import the standard library only.
var Leaves = []string{"internal/digest", "internal/fault", "internal/mediatype"}

// Package is one package as go list prints it.
type Package struct {
	ImportPath string
	Doc        string // first sentence of its comment
	GoFiles    []string
	Imports    []string
	Deps       []string
	Standard   bool
}

// own returns the path of p below the module.
func (p Package) own() string { return strings.TrimPrefix(p.ImportPath, Module+"/") }

// Violations returns every breach of r among all, the packages of the module.
func Violations(r Rule, all []Package) []string {
	var self []Package
	for _, p := range all {
		if matches(r.Packages, p.own()) {
			self = append(self, p)
		}
	}
	if len(self) == 0 {
		return []string{r.Packages + " matches no package"}
	}
	var out []string
	if r.Only != nil || r.Stdlib {
		out = append(out, missing(r.Why, r.Packages+": Only and Stdlib")...)
	}
	if r.By != nil {
		out = append(out, missing(r.ByWhy, r.Packages+": By")...)
		out = append(out, importers(r, all)...)
	}
	for _, p := range self {
		for _, dep := range p.Deps {
			out = append(out, judge(r, p, dep)...)
		}
		if r.Apart == "" {
			continue
		}
		for _, dep := range p.Imports {
			if other, ok := strings.CutPrefix(dep, Module+"/"); ok && matches(r.Packages, other) && !anyMatches(r.Shared, other) {
				out = append(out, fmt.Sprintf("%s imports %s: %s", p.own(), other, r.Apart))
			}
		}
	}
	return out
}

func judge(r Rule, p Package, dep string) []string {
	var out []string
	other, own := strings.CutPrefix(dep, Module+"/")
	switch {
	case own && r.Only != nil && !matches(r.Packages, other) && !anyMatches(r.Only, other) && !slices.Contains(Leaves, other):
		out = append(out, fmt.Sprintf("%s depends on %s: %s", p.own(), other, r.Why))
	case !own && r.Stdlib && strings.Contains(strings.Split(dep, "/")[0], "."):
		out = append(out, fmt.Sprintf("%s depends on %s: %s", p.own(), dep, r.Why))
	}
	for banned, why := range r.Banned {
		if dep == banned || strings.HasSuffix(banned, "/") && strings.HasPrefix(dep, banned) {
			out = append(out, fmt.Sprintf("%s depends on %s: %s", p.own(), dep, why))
		}
	}
	return out
}

// importers checks who imports the rule's packages.
func importers(r Rule, all []Package) []string {
	var out []string
	for _, p := range all {
		if matches(r.Packages, p.own()) || anyMatches(r.By, p.own()) {
			continue
		}
		for _, dep := range p.Imports {
			if other, ok := strings.CutPrefix(dep, Module+"/"); ok && matches(r.Packages, other) {
				out = append(out, fmt.Sprintf("%s imports %s: %s", p.own(), other, r.ByWhy))
			}
		}
	}
	return out
}

func missing(reason, what string) []string {
	if reason == "" {
		return []string{what + " has no reason"}
	}
	return nil
}

func anyMatches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// nested are folders that stand below another one and keep rules of their own: a pattern covers
// one only where it names it.
var nested = []string{"builder/release", "media/netboot", "oci/trust", "packaging/hack", "packaging/systemd"}

// nestedIn returns the nested folder that a path lies in, "" where it lies in none.
func nestedIn(path string) string {
	for _, r := range nested {
		if path == r || strings.HasPrefix(path, r+"/") {
			return r
		}
	}
	return ""
}

// matches reports whether a pattern covers a path below the module. "a/*" covers
// the directories directly below a.
func matches(pattern, path string) bool {
	if nestedIn(pattern) != nestedIn(path) {
		return false
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	if below, ok := strings.CutSuffix(pattern, "/*"); ok {
		rest, under := strings.CutPrefix(path, below+"/")
		return under && !strings.Contains(rest, "/")
	}
	return pattern == path
}

// List runs go list from the module's root.
func List(t *testing.T, patterns ...string) []Package {
	t.Helper()
	out, err := Go("list", append([]string{"-json=ImportPath,Doc,GoFiles,Imports,Deps,Standard"}, patterns...)...)
	if err != nil {
		t.Fatal(err)
	}
	var packages []Package
	d := json.NewDecoder(strings.NewReader(out))
	for {
		var p Package
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
