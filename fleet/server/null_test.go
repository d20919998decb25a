// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/index"
)

// An answer has its lists also where nothing is in them, and null nowhere: who reads it
// counts what is in a list.
func TestNoAnswerIsNull(t *testing.T) {
	for name, s := range map[string]*site{"an empty fleet": newSite(t, index.Rows{}, false), "nodes that never reported": newSite(t, rowsOf("n1", "n2"), false)} {
		for _, knows := range []bool{false, true} {
			if knows {
				s.knows(withServices)
			}
			s.server.o.Past = kept{generations: 3}
			for _, r := range s.server.routes() {
				path, get := strings.CutPrefix(r.pattern, "GET ")
				if !get || !strings.HasPrefix(path, "/v1/") || path == "/v1/events" || path == "/v1/reports" || path == "/v1/acts" { // streams, and lines
					continue
				}
				path = strings.NewReplacer("{node}", "n1", "{range}", "2..3").Replace(path)
				status, text := s.ask("GET", path, nil)
				if status == 404 && name == "an empty fleet" {
					continue
				}
				var doc any
				if err := json.Unmarshal([]byte(text), &doc); err != nil || status != 200 {
					t.Errorf("%s: %s: %d, %v", name, path, status, err)
				}
				for _, at := range nulls(doc, "") {
					t.Errorf("%s: %s: %s is null", name, path, at)
				}
			}
			_, text := s.ask("GET", "/v1/nodes?condition=broken", nil)
			if !strings.Contains(text, `"nodes":[]`) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// nulls are the places of a document that are null.
func nulls(doc any, at string) (list []string) {
	switch v := doc.(type) {
	case nil:
		return []string{at}
	case map[string]any:
		for key, x := range v {
			list = append(list, nulls(x, at+"."+key)...)
		}
	case []any:
		for i, x := range v {
			list = append(list, nulls(x, fmt.Sprint(at, ".", i))...)
		}
	}
	return list
}
