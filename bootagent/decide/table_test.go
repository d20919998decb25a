// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/test/doctext"
)

// events are those of the table in the order of their constants, and titles what stands behind these.
var events, titles = func() (list []Event, titles map[Event]string) {
	f, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, parser.ParseComments)
	if err != nil {
		panic(err)
	}
	titles = map[Event]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && fmt.Sprint(v.Type) == "Event" {
			e := Event(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`))
			list, titles[e] = append(list, e), strings.TrimSpace(v.Comment.Text())
		}
		return true
	})
	return list, titles
}()

// The last row of each event always holds, and names are names.
func TestEveryEventHasAnAnswer(t *testing.T) {
	for _, e := range events {
		if Next(&Facts{Event: e, Ended: true}).Name == "" {
			t.Errorf("%s: no name", e)
		}
	}
	last, names := map[Event]*Row{}, map[string]bool{}
	for i := range Table {
		r := &Table[i]
		if before := last[r.On]; before != nil && before.is == nil {
			t.Errorf("%s: no row after %s is ever met", r.Name, before.Name)
		}
		if i > 0 && Table[i-1].On != r.On && last[r.On] != nil {
			t.Errorf("%s: the rows of %s are not together", r.Name, r.On)
		}
		if names[r.Name] || strings.Trim(r.Name, "abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Errorf("%q is not a name, or has another row, too", r.Name)
		}
		if !slices.Contains(events, r.On) || r.When == "" || r.Does == "" || r.Act == "" || (r.Act == DeferReboot) != (r.waits != "") {
			t.Errorf("%s: %+v", r.Name, *r)
		}
		last[r.On], names[r.Name] = r, true
	}
	for _, e := range events {
		if last[e] == nil || last[e].is != nil {
			t.Errorf("%s: there are facts without an answer", e)
		}
	}
}

// A decision reads nothing: its package imports nothing that does, but for types.
func TestItIsPure(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	const own = `"github.com/caisson-os/caisson/bootagent/`
	may := []string{`"fmt"`, `"slices"`, `"time"`, own + `record"`, own + `record/state"`, `"github.com/caisson-os/caisson/spec"`}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if !slices.Contains(may, i.Path.Value) {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && (s.Sel.Name == "Now" || s.Sel.Name == "Since") {
					t.Errorf("%s asks what time it is", name)
				}
			}
			return true
		})
	}
}

// page is the table as the page shows it.
func page() string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n**%s**\n\n| when | what the node does | transition |\n|---|---|---|\n", strings.ToUpper(titles[e][:1])+titles[e][1:])
		for _, r := range Table {
			if r.On == e {
				does := r.Does
				if r.waits != "" {
					does += " (`waiting:" + r.waits + "`)"
				}
				fmt.Fprintf(&b, "| %s | %s | `%s` |\n", r.When, does, r.Name)
			}
		}
	}
	return b.String()
}

// TestThePageShowsTheTable holds that the page has the table as it is. With
// CAISSON_UPDATE it writes it there.
func TestThePageShowsTheTable(t *testing.T) {
	if err := doctext.Printed("../../docs/decisions.md", "decisions", "bootagent/decide", page()+"\n"); err != nil {
		t.Error(err)
	}
}

// TestATrialThatIsFound asks what is done about a trial that a process finds, by the boot and
// the time at which it does.
func TestATrialThatIsFound(t *testing.T) {
	waiting := state.Trial{Boot: "this", Confirm: state.ByOperator, Within: 60, Ends: 160}
	for name, row := range map[string]struct {
		change func(*state.Trial)
		boot   string
		up     time.Duration
		want   string
		why    string
	}{
		"none":                          {nil, "this", 0, "settled", ""},
		"undone":                        {func(s *state.Trial) { s.Reason = "because" }, "this", time.Hour, "settled", ""},
		"undone in another boot":        {func(s *state.Trial) { s.Reason = "because" }, "that", time.Hour, "settled", ""},
		"waiting":                       {func(*state.Trial) {}, "this", 100 * time.Second, "settled", ""},
		"waiting, to the last moment":   {func(*state.Trial) {}, "this", 160*time.Second - 1, "settled", ""},
		"over":                          {func(*state.Trial) {}, "this", 160 * time.Second, "undo-unconfirmed", "nobody confirmed it within 60 s"},
		"long over":                     {func(*state.Trial) {}, "this", 24 * time.Hour, "undo-unconfirmed", "nobody confirmed"},
		"another boot, in time":         {func(*state.Trial) {}, "that", time.Second, "undo-after-restart", "started over"},
		"unfinished":                    {func(s *state.Trial) { s.Ends = 0 }, "this", 100 * time.Second, "undo-after-cut", "the agent ended"},
		"unfinished, by reach":          {func(s *state.Trial) { s.Ends, s.Confirm = 0, state.ByReach }, "this", 100 * time.Second, "undo-after-cut", "the agent ended"},
		"unfinished, of another boot":   {func(s *state.Trial) { s.Ends = 0 }, "that", 100 * time.Second, "undo-after-restart", "started over"},
		"an agent behind early, cut":    {func(s *state.Trial) { s.Ends = 0 }, "this", time.Second, "undo-after-cut", "the agent ended"},
		"begun early":                   {func(s *state.Trial) { s.Ends, s.Early = 0, true }, "this", time.Second, "early-goes-on", ""},
		"early, of another boot":        {func(s *state.Trial) { s.Ends, s.Early = 0, true }, "that", time.Second, "early-ended", ""},
		"of a kernel that has just run": {func(s *state.Trial) { s.Ends = 1 }, "this", 0, "settled", ""},
	} {
		s := new(state.State)
		if row.change != nil {
			copied := waiting
			row.change(&copied)
			s.Trial = &copied
		}
		root := RunRoot{Boot: row.boot, Runs: new(state.Generation)}
		got := Next(&Facts{Event: Begin, Boot: row.boot, Up: row.up, Run: ReadRun(s, new(record.Live), root)})
		if got.Name != row.want || !strings.Contains(got.Why, row.why) || (got.Why == "") != (row.want == "settled" || strings.HasPrefix(row.want, "early-")) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
