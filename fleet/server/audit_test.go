// SPDX-License-Identifier: Apache-2.0

package server

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/store"
)

// logged is a service with rows in its log: n by eve, about nodes in turn, and one of kim.
func logged(t *testing.T, n int) *site {
	t.Helper()
	var acts []audit.Row
	for i := range n {
		acts = append(acts, audit.New(time.Unix(int64(1_000_000+i), 0), "eve<b>", audit.Accept, fmt.Sprintf("n%d", i%3), fmt.Sprintf("key-%d-", i)))
	}
	acts = append(acts, audit.New(time.Unix(2_000_000, 0), "Kim at id.example", audit.Login, "n1", "ops"))
	return newSiteOver(t, store.Change{Nodes: []store.Node{}, Acts: acts}, rowsOf("n0", "n1", "n2"))
}

// TestAuditPage: rows are shown the newest first, of a person and of a node, so many at a time.
func TestAuditPage(t *testing.T) {
	s := logged(t, 250)
	page := func(path string) string {
		t.Helper()
		status, text := s.ask("GET", path, nil)
		if status != http.StatusOK || strings.Contains(text, "<b>,") || strings.Contains(text, "eve<b>") {
			t.Fatalf("%s: %d\n%s", path, status, text)
		}
		return text
	}
	first := page("/audit")
	if n := strings.Count(first, `<td data-is="what">`); n != actsShown {
		t.Errorf("%d rows", n)
	}
	if newest, next := strings.Index(first, ">251</td>"), strings.Index(first, ">250</td>"); newest < 0 || next < newest {
		t.Errorf("the newest is not first:\n%s", first)
	}
	if !strings.Contains(first, "The chain holds, over 251 rows") || !strings.Contains(first, `href="/audit?before=152&amp;node=&amp;who="`) {
		t.Errorf("no state, or no next page:\n%s", first)
	}
	if last := page("/audit?before=52"); strings.Count(last, `<td data-is="what">`) != 51 || strings.Contains(last, "older") {
		t.Errorf("the last page:\n%s", last)
	}
	if of := page("/audit?who=KIM"); strings.Count(of, `<td data-is="what">`) != 1 || !strings.Contains(of, "Kim at id.example") || strings.Contains(of, "older") {
		t.Errorf("of a person:\n%s", of)
	}
	if of := page("/audit?node=n1"); strings.Count(of, `<td data-is="what">`) != 83 || strings.Contains(of, "Kim") {
		t.Errorf("a login is not about a node:\n%s", of)
	}
	if of := page("/audit?who=nobody"); !strings.Contains(of, "No row of those that were looked through.") {
		t.Errorf("of nobody:\n%s", of)
	}
	if status, text := s.ask("GET", "/audit?before=x", nil); status != http.StatusBadRequest || !strings.Contains(text, "before is the number of a row") {
		t.Errorf("%d\n%s", status, text)
	}
}

// TestStolenAuditLog: who writes to the database cannot change a row, take one out or make one
// unreadable without the page saying so; a chain that was made anew is found by an export of before.
func TestStolenAuditLog(t *testing.T) {
	for name, change := range map[string]string{
		"changed":     `UPDATE acts SET line = replace(line, 'key-3-', 'key-4-') WHERE seq = 4`,
		"taken out":   `DELETE FROM acts WHERE seq = 4`,
		"not a row":   `UPDATE acts SET line = 'no row' WHERE seq = 4`,
		"another's":   `UPDATE acts SET line = (SELECT line FROM acts WHERE seq = 5) WHERE seq = 4`,
		"the newest":  `UPDATE acts SET line = '{}' WHERE seq = (SELECT MAX(seq) FROM acts)`,
		"the oldest":  `DELETE FROM acts WHERE seq = 1`,
		"not changed": ``,
	} {
		s := logged(t, 9)
		s.alter(change)
		status, text := s.ask("GET", "/audit", nil)
		if broken := strings.Contains(text, "The chain does not hold: "); status != http.StatusOK || broken != (change != "") {
			t.Errorf("%s: %d\n%s", name, status, text)
		}
	}
	// All of it made anew is a chain; the export of before is not in it.
	s := logged(t, 3)
	export, err := s.hub.Log().Acts(t.Context(), 0, audit.AtOnce)
	if err != nil {
		t.Fatal(err)
	}
	var before audit.Row
	for _, r := range export {
		r.Who = "kim"
		before = r.Chain(before)
		text, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		s.alter("UPDATE acts SET line = '" + string(text) + "' WHERE seq = " + fmt.Sprint(r.Seq))
	}
	if _, text := s.ask("GET", "/audit", nil); !strings.Contains(text, "The chain holds") || !strings.Contains(text, "<code>--against</code>") {
		t.Errorf("made anew:\n%s", text)
	}
	now, err := s.hub.Log().Acts(t.Context(), 0, audit.AtOnce)
	if err := audit.Same(export, now); !errors.Is(err, audit.ErrBroken) {
		t.Error(err)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestAuditChecksTheNewest: of a long log so many of the newest rows are checked, from the row before
// them, once a minute.
func TestAuditChecksTheNewest(t *testing.T) {
	s := logged(t, 9)
	newest := func(most int64) audit.Chain { return audit.Newest(t.Context(), s.hub.Log(), most, s.hub.Now()) }
	look := func() audit.Chain { return s.server.chain.Chain(t.Context(), s.hub.Log(), s.hub.Now()) }
	if c := newest(4); c.Broken+c.Unknown != "" || c.Rows != 4 || c.From != 6 {
		t.Errorf("%+v", c)
	}
	seen := look()
	s.alter(`DELETE FROM acts WHERE seq = 3`)
	if c := newest(4); c.Broken != "" || c.Rows != 4 {
		t.Errorf("%+v", c)
	}
	if look() != seen {
		t.Error("it is checked at each look")
	}
	if c := newest(100); !strings.Contains(c.Broken, "row 4 comes after row 2") {
		t.Errorf("%+v", c)
	}
	s.alter(`DELETE FROM acts WHERE seq = 6`)
	if c := newest(4); !strings.Contains(c.Broken, "row 6 is not there") {
		t.Errorf("%+v", c)
	}
}

// alter changes the database as somebody does who has stolen it.
func (s *site) alter(statement string) {
	s.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(s.db.Place(), "sqlite:"))
	if err != nil {
		s.Fatal(err)
	}
	if _, err := db.ExecContext(s.Context(), statement); err != nil {
		s.Fatal(statement, err)
	}
	if err := db.Close(); err != nil {
		s.Fatal(err)
	}
}
