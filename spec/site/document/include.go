// SPDX-License-Identifier: Apache-2.0

package document

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Bounds of what a Site may name.
const (
	maxDepth    = 8    // files that name files
	maxIncluded = 1000 // files of all patterns together
)

// Beside returns the name of a file as the document at at means it: relative to
// the file that the document is in.
func Beside(at report.Pos, name string) string {
	if path.IsAbs(name) || at.Src == nil {
		return path.Clean(name)
	}
	return path.Join(path.Dir(at.Src.Name), name)
}

// include reads the files that a Site's patterns name, each once, in order of the
// patterns and then of the names.
func (r *Reader) include(patterns []shape.Text) {
	shape.Each(r.Checker, "include", patterns, func(_ int, p shape.Text) {
		if !strings.ContainsAny(p.S, `*?[\`) {
			r.includeFile(Beside(p.At, p.S), p.At)
			return
		}
		for _, name := range r.matches(p) {
			if !slices.Contains(r.open, name) { // *.yaml means the files beside this one
				r.includeFile(name, p.At)
			}
		}
	})
}

func (r *Reader) includeFile(name string, at report.Pos) {
	if r.included[name] {
		return
	}
	if len(r.included) >= maxIncluded {
		r.Errorf(at, "include", "put several documents into one file", "more than %d files are included", maxIncluded)
		return
	}
	if r.included == nil {
		r.included = map[string]bool{}
	}
	r.included[name] = true
	r.read(name, at, false)
}

// matches returns the files that a pattern names, sorted.
func (r *Reader) matches(p shape.Text) []string {
	if path.IsAbs(p.S) || slices.Contains(strings.Split(p.S, "/"), "..") {
		r.Errorf(p.At, "include", "name the file itself", "a pattern matches only below the directory of its file")
		return nil
	}
	if strings.Contains(p.S, "**") {
		r.Errorf(p.At, "include", "write one pattern a level, as in conf/*.yaml and conf/*/*.yaml", "** has no meaning here")
		return nil
	}
	names, err := fs.Glob(below{r.fsys, path.Dir(p.At.Src.Name)}, p.S)
	if err != nil {
		r.Errorf(p.At, "include", "see path.Match", "%q is not a pattern", p.S)
		return nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { // what editors leave behind
		return strings.HasPrefix(path.Base(name), ".") && !strings.HasPrefix(path.Base(p.S), ".")
	})
	if len(names) == 0 {
		r.Warnf(p.At, "include", "", "%q matches no file", p.S)
	}
	slices.Sort(names)
	return plain.Each(names, func(name string) string { return Beside(p.At, name) })
}

// below is a directory of a file system whose names need not be valid for [fs.Sub].
type below struct {
	fs.FS
	dir string
}

func (b below) Open(name string) (fs.File, error) { return b.FS.Open(path.Join(b.dir, name)) }

// ReadCAs replaces the files that machine names by their content, once, so that
// nothing later needs the file system.
func (r *Reader) ReadCAs(v *tree.Value) *tree.Value {
	cas := v.Get("cas")
	if cas == nil || cas.Kind != tree.Sequence {
		return v
	}
	out := *cas
	out.List = make([]*tree.Value, len(cas.List))
	for i, e := range cas.List {
		if out.List[i] = e; e.Kind != tree.Scalar {
			continue
		}
		text := e.Text
		if !strings.Contains(text, "-----BEGIN") {
			text = string(r.Named(Beside(e.At, e.Text), e.At, maxText, ""))
			if text == "" {
				continue
			}
		}
		if err := machine.CertificateProblem(text); err != "" {
			r.Errorf(e.At, "certificate", "", "%s", err)
		}
		read := *e
		read.Text = text
		out.List[i] = &read
	}
	return v.With("cas", &out)
}
