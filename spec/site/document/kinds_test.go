// SPDX-License-Identifier: Apache-2.0

package document

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

const top = "../../../"

// Each kind of document is collected by itself, is named by one line of the source and is
// shown in the docs: what else there is of a kind follows from its row.
func TestKindIsOneRow(t *testing.T) {
	lists := func(r *Reader) (out []int) {
		for _, v := range []reflect.Value{reflect.ValueOf(r.Maintenance), reflect.ValueOf(*r)} {
			for field, list := range v.Fields() {
				if list.Kind() == reflect.Slice && field.IsExported() && !strings.HasSuffix(list.Type().Elem().PkgPath(), "/inventory") {
					out = append(out, list.Len())
				}
			}
		}
		return out
	}
	r := &Reader{Checker: &shape.Checker{Report: &report.Report{}}}
	if n := len(lists(r)); n != len(kinds) {
		t.Errorf("%d kinds are collected in %d lists", len(kinds), n)
	}
	spelled, docs := literals(t), pages(t)
	for _, k := range kinds {
		before := lists(r)
		k.add(r, &tree.Value{Kind: tree.Mapping})
		grown := 0
		for i, n := range lists(r) {
			grown += n - before[i]
			if n > 1 {
				t.Errorf("%s is collected with another kind", k.Kind())
			}
		}
		if grown != 1 {
			t.Errorf("%s is collected %d times", k.Kind(), grown)
		}
		if at := spelled(k.Kind()); len(at) != 1 {
			t.Errorf("%s is spelled by %d lines of the source: %q", k.Kind(), len(at), at)
		}
		if !strings.Contains(docs, "kind: "+k.Kind()+"\n") {
			t.Errorf("no page shows a document of kind: %s", k.Kind())
		}
		if !slices.Contains(SchemaNames(), strings.ToLower(k.Kind())) {
			t.Errorf("%s has no schema", k.Kind())
		}
	}
}

// literals returns a function that finds the strings of the source, but for tests, that are
// a kind or that give a field its one value.
func literals(t *testing.T) func(kind string) []string {
	t.Helper()
	value := regexp.MustCompile(`enum:"(\w+)"`)
	places := map[string][]string{}
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var s scanner.Scanner
		files := token.NewFileSet()
		s.Init(files.AddFile(name, -1, len(src)), src, nil, 0)
		for {
			at, tok, text := s.Scan()
			if tok == token.EOF {
				return nil
			}
			if tok != token.STRING {
				continue
			}
			if text, err = strconv.Unquote(text); err != nil {
				return err
			}
			if m := value.FindStringSubmatch(text); m != nil {
				text = m[1]
			}
			places[text] = append(places[text], files.Position(at).String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(kind string) []string { return places[kind] }
}

// pages returns the text of all pages.
func pages(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob(top + "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	return out.String()
}
