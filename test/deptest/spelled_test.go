// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSpelledOnce: what programs compare with each other is spelled by one line of the
// source. Digests are made by internal/digest, and a media type is one constant.
func TestSpelledOnce(t *testing.T) {
	types, digests := map[string][]string{}, 0
	for at, text := range texts(t) {
		switch {
		case strings.HasPrefix(text, "application/vnd.caisson."):
			types[text] = append(types[text], at)
		case text == "sha256:" || strings.Contains(text, "sha256:%"):
			digests++
			if !strings.HasPrefix(at, "internal/digest/") {
				t.Errorf("%s makes a digest of %q; internal/digest does that", at, text)
			}
		}
	}
	for name, at := range types {
		if len(at) > 1 {
			t.Errorf("%s is spelled %d times: %q", name, len(at), at)
		}
	}
	if digests == 0 || len(types) < 10 {
		t.Errorf("%d texts of digests and %d media types were found", digests, len(types))
	}
}

// texts returns the string literals of the source, but for tests, by their places.
func texts(t *testing.T) map[string]string {
	t.Helper()
	const top = "../.."
	out := map[string]string{}
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, top+"/test/") {
			return err
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var s scanner.Scanner
		files := token.NewFileSet()
		s.Init(files.AddFile(strings.TrimPrefix(name, top+"/"), -1, len(src)), src, nil, 0)
		for {
			at, tok, text := s.Scan()
			switch tok {
			case token.EOF:
				return nil
			case token.STRING:
				if text, err = strconv.Unquote(text); err != nil {
					return err
				}
				out[files.Position(at).String()] = text
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
