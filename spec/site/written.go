// SPDX-License-Identifier: Apache-2.0

package site

import (
	"iter"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// PackageAt returns where the site asks for a package, in a version where one is
// given; the zero place when it does not ask for it.
func (s *Site) PackageAt(name, version string) report.Pos {
	if k := s.doc.Layer.Kernel.Package; k.S == name {
		return k.At
	}
	for v := range s.packageValues() {
		if n, given := v.Get("name"), v.Get("version"); n != nil && n.Text == name && (version == "" || given != nil && given.Text == version) {
			return n.At
		}
	}
	return report.Pos{}
}

// SuiteAt returns where the site names a suite of an archive, or one that it comes
// with, as trixie-updates does with trixie; the zero place when it does not.
func (s *Site) SuiteAt(suite string) report.Pos {
	if d := s.doc.Layer.Base.Debian; d != nil && (d.Suite == suite || strings.HasPrefix(suite, d.Suite+"-")) {
		return s.doc.Layer.V.Get("base").Get("debian").Get("suite").At
	}
	for v := range s.packageValues() {
		if v.Kind == tree.Scalar && v.Text == suite {
			return v.At
		}
	}
	return report.Pos{}
}

// Text is a file that the site has nodes write.
type Text struct{ Path, Content, At string }

// TextsOn returns the files whose text the site gives to nodes, those of units as well. Nodes
// with the same settings share a set.
func (s *Site) TextsOn(nodes []string) (sets [][]Text) {
	seen := map[itemsKey]bool{}
	for _, name := range nodes {
		n, _ := s.fleet.Get(name)
		fragments, key := s.fragments(n)
		if key != nil && seen[*key] {
			continue
		}
		if key != nil {
			seen[*key] = true
		}
		var set []Text
		for _, f := range fragments {
			add := func(path, content string) { set = append(set, Text{path, content, f.Owns[path].String()}) }
			for _, file := range f.Items.Files {
				if file.Secret == "" {
					add(file.Path, file.Content)
				}
			}
			for _, u := range f.Items.Units {
				if u.Content != "" {
					add(rules.UnitFile(u.Name), u.Content)
				}
				for _, d := range u.DropIns {
					add(rules.UnitDropIn(u.Name, d.Name), d.Content)
				}
			}
		}
		if len(set) > 0 {
			sets = append(sets, set)
		}
	}
	return sets
}

// packageValues returns all values of apt, those of overrides after the others.
func (s *Site) packageValues() iter.Seq[*tree.Value] {
	return func(yield func(*tree.Value) bool) {
		apt := s.parts.Named("apt")
		more := walk(apt.Base, yield)
		for _, t := range apt.Targets() {
			more = more && walk(t.Over, yield)
		}
	}
}

// walk yields a value and all below it until yield returns false, and reports
// whether it never did.
func walk(v *tree.Value, yield func(*tree.Value) bool) bool {
	if v == nil {
		return true
	}
	if !yield(v) {
		return false
	}
	for _, f := range v.Fields {
		if !walk(f.Val, yield) {
			return false
		}
	}
	for _, e := range v.List {
		if !walk(e, yield) {
			return false
		}
	}
	return true
}
