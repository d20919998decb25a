// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/people"
)

// A page is a row and a file: one route, one text, and a title of its own.
func TestPageIsOneRow(t *testing.T) {
	names, err := fs.Glob(files, "page/*.html")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{"frame.html": true, login.text: true} // what every page has, and what is within it
	titles, found := map[string]string{}, 0
	for _, p := range allPages {
		texts[p.text] = true
		if other, dup := titles[p.Title]; dup && p.Title != "" { // those are named by what they are about
			t.Errorf("%s and %s are called %q", p.Path, other, p.Title)
		}
		titles[p.Title] = p.Path
		if p.Main != (p.Title != "" && p.role != people.Nobody) {
			t.Errorf("%s stands in the head of pages: %t", p.Path, p.Main)
		}
	}
	if len(texts) != len(allPages)+1 {
		t.Errorf("%d pages have %d texts", len(allPages), len(texts)-1)
	}
	for _, name := range names {
		if !texts[strings.TrimPrefix(name, "page/")] {
			t.Errorf("%s is the text of no page", name)
		}
	}
	for _, r := range (&Server{}).routes() {
		path, get := strings.CutPrefix(r.pattern, "GET ")
		if get && r.says == "" && !strings.HasPrefix(path, "/login/") { // the way to a provider and back shows nothing
			found++
			if !slices.ContainsFunc(allPages, func(p page) bool { return p.pattern() == path && p.role == r.role }) {
				t.Errorf("%s is the route of no page", r.pattern)
			}
		}
	}
	if found != len(allPages) {
		t.Errorf("%d pages have %d routes", len(allPages), found)
	}
	for path, want := range map[string]string{"/": "/", "/nodes": "/nodes", "/nodes/a": "/nodes", "/generations/3..4": "/generations", "/nodesx": "", "/login": ""} {
		var here []string
		for _, p := range allPages {
			if p.Main && p.Here(path) {
				here = append(here, p.Path)
			}
		}
		if strings.Join(here, " ") != want {
			t.Errorf("at %s the head shows %q, want %q", path, here, want)
		}
	}
}

// Requests share a page's row and change nothing of it: each node's page has its own name,
// whichever was asked for first, and at once.
func TestTitles(t *testing.T) {
	names := []string{"n1", "n2", "n3", "n4"}
	s := newSite(t, rowsOf(names...), false)
	var all sync.WaitGroup
	for range 4 {
		for _, name := range append(names, "none") {
			all.Go(func() {
				if _, text := s.ask("GET", "/nodes/"+name, nil); !strings.Contains(text, "<title>"+name+" · ") {
					t.Errorf("%s has another title:\n%.300s", name, text)
				}
			})
		}
	}
	all.Wait()
}

// TestPagesSayWhoSigned: each page names the keys that signed what is published.
func TestPagesSayWhoSigned(t *testing.T) {
	s := newSite(t, index.Rows{"n1": {}}, false)
	if _, text := s.ask("GET", "/", nil); !strings.Contains(text, "generation 7, epoch 0, signed by kim, &lt;b&gt;</span>") {
		t.Errorf("the page does not say it:\n%s", text)
	}
	if _, text := s.ask("GET", "/v1/summary", nil); !strings.Contains(text, `"signedBy":["kim",`) {
		t.Errorf("the summary does not say it: %s", text)
	}
}
