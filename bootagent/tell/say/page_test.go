// SPDX-License-Identifier: Apache-2.0

package say

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/doctext"
)

const page = "../../../docs/axes.md"

// The page of the axes has the tables as they are.
func TestThePageShowsTheTables(t *testing.T) {
	var health, doing strings.Builder
	health.WriteString("\n| item | when | health |\n|---|---|---|\n")
	for _, c := range conditions {
		if c.item == "" || c.when == "" || (c.kinds == "") == (c.find == nil) {
			t.Errorf("%+v", c)
		}
		fmt.Fprintf(&health, "| %s | %s | `%s` |\n", c.item, c.when, c.health)
	}
	doing.WriteString("\n| activity | when |\n|---|---|\n")
	for _, a := range activities {
		if a.state == "" || a.when == "" || a.look == nil {
			t.Errorf("%+v", a)
		}
		fmt.Fprintf(&doing, "| `%s` | %s |\n", a.state, a.when)
	}
	fmt.Fprintf(&doing, "| `%s` | nothing of that |\n", spec.ActivityIdle)
	if err := doctext.Printed(page, "health", "bootagent/tell/say", health.String()+"\n"); err != nil {
		t.Error(err)
	}
	if err := doctext.Printed(page, "activity", "bootagent/tell/say", doing.String()+"\n"); err != nil {
		t.Error(err)
	}
}

// The page has a row for each word that an operation waits with: the For constants of package
// spec, with what stands beside them there.
func TestThePageNamesEveryWait(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../../spec/maintenance.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var waits strings.Builder
	waits.WriteString("\n| WHAT | what is waited for |\n|---|---|\n")
	rows := 0
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Names) != 1 || len(v.Values) != 1 || !strings.HasPrefix(v.Names[0].Name, "For") {
			return true
		}
		word, ok := v.Values[0].(*ast.BasicLit)
		if !ok || v.Comment == nil {
			t.Errorf("%s has no word, or says nothing", v.Names[0].Name)
			return true
		}
		fmt.Fprintf(&waits, "| `%s` | %s |\n", strings.Trim(word.Value, `"`), strings.TrimSpace(v.Comment.Text()))
		rows++
		return true
	})
	if rows < 9 {
		t.Errorf("%d words", rows)
	}
	if err := doctext.Printed(page, "waits", "bootagent/tell/say", waits.String()+"\n"); err != nil {
		t.Error(err)
	}
}

// The page names every state that an axis can have.
func TestThePageNamesEveryState(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	states := []string{string(spec.Following), string(spec.Frozen), string(spec.Held), string(spec.SyncRefused("CODE")), string(spec.ActivityIdle), string(spec.ActivitySoaking), string(spec.ActivityStaging)}
	for _, s := range []spec.Sync{spec.SyncCurrent, spec.SyncBehind, spec.SyncUnreachable, spec.SyncExpired, spec.SyncUnconfirmed} {
		states = append(states, string(s))
	}
	for _, h := range []spec.Health{spec.HealthOK, spec.HealthDegraded, spec.HealthQuarantined, spec.HealthBroken} {
		states = append(states, string(h))
	}
	for _, s := range states {
		if !strings.Contains(string(text), "`"+s+"`") {
			t.Errorf("%s is missing", s)
		}
	}
}
