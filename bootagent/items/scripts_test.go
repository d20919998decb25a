// SPDX-License-Identifier: Apache-2.0

package items

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// script is one that says in srv/ran that it runs, and ends with a number.
func (n *node) script(name, says, exit string) spec.Exec {
	return spec.Exec{Name: name, Data: "#!/bin/sh\necho " + says + " >>" + n.root + "/srv/ran\nexit " + exit + "\n"}
}

// halting is a script that those behind it wait for.
func halting(w spec.Exec) spec.Exec {
	w.Blocking = "foreground_halt_pod_on_failure"
	return w
}

// ran returns the scripts that ran since it was last called.
func (n *node) ran() string {
	n.t.Helper()
	name := filepath.Join(n.root, "srv/ran")
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		n.t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// later has all scripts have run this much earlier.
func (n *node) later(by time.Duration) {
	n.t.Helper()
	names, err := filepath.Glob(filepath.Join(n.root, "state/exec/*/run.json"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			n.t.Fatal(err)
		}
		record := map[string]any{}
		if err := json.Unmarshal(data, &record); err != nil {
			n.t.Fatal(err)
		}
		for _, key := range []string{"start", "end"} {
			if text, ok := record[key].(string); ok {
				at, err := time.Parse(time.RFC3339Nano, text)
				if err != nil {
					n.t.Fatal(err)
				}
				record[key] = at.Add(-by)
			}
		}
		if data, err = json.Marshal(record); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

func scripts(list ...spec.Exec) spec.Items { return spec.Items{Exec: list} }

// What a change asks for takes its turn among what was due before it.
func TestAChangedScriptTakesItsTurn(t *testing.T) {
	for _, c := range []struct {
		name         string
		halts        bool
		exit         string
		first, after string
	}{
		{"halts", true, "1", "010", "010"},
		{"fails and does not halt", false, "1", "010 020 030", "010 020 030b"},
		{"halts and succeeds", true, "0", "010 020 030", "010 020 030b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			first := n.script("010", "010", c.exit)
			if c.halts {
				first = halting(first)
			}
			before := scripts(first, n.script("020", "020", "0"), n.script("030", "030", "0"))
			Reconcile(t.Context(), n.items(before), n.journal)
			if got := n.ran(); got != c.first {
				t.Fatalf("at the start ran %q, want %q", got, c.first)
			}
			n.later(61 * time.Second)
			next := scripts(first, n.script("020", "020", "0"), n.script("030", "030b", "0"))
			r := Transact(t.Context(), n.items(next), n.items(before), n.journal, nil)
			if got := n.ran(); r.Err != nil || got != c.after {
				t.Errorf("with the change ran %q, %v; want %q", got, r.Err, c.after)
			}
		})
	}
}

// So does a new one, on a root that has just come up.
func TestANewScriptTakesItsTurn(t *testing.T) {
	n := newNode(t)
	before := scripts(n.script("005", "005", "0"), n.script("008", "008", "0"))
	next := scripts(append(before.Exec, n.script("015", "015", "0"))...)
	ok(t, Transact(t.Context(), n.items(next), n.items(before), n.journal, nil))
	if got := n.ran(); got != "005 008 015" {
		t.Errorf("ran %q", got)
	}
}

// A script that was due before is not the change's, and does not take it back: also
// where it asks for that, and where it is due again before the change is made.
func TestWhatWasDueBeforeTakesNothingBack(t *testing.T) {
	n := newNode(t)
	failing := n.script("010", "010", "1")
	failing.OnFailure = "rollback"
	before := scripts(failing)
	if r := Reconcile(t.Context(), n.items(before), n.journal); r.Health != spec.HealthDegraded {
		t.Fatalf("result %+v", r)
	}
	n.later(61 * time.Second)
	n.ran()
	next := scripts(failing, n.script("020", "020", "0"))
	next.Sysctl = []spec.Sysctl{{Key: "vm/swappiness", Value: "30"}}
	r := Transact(t.Context(), n.items(next), n.items(before), n.journal, nil)
	if got := n.ran(); r.Err != nil || r.RolledBack || got != "010 020" || n.read("proc/sys/vm/swappiness") != "30" {
		t.Errorf("ran %q, result %+v", got, r)
	}
	if r.Health != spec.HealthDegraded || !strings.Contains(of(t, r, "exec").Error, "exit 1") {
		t.Errorf("its failure does not show: %+v", r)
	}
}

// A script that has succeeded and is due again by the end of the run is not trouble:
// the next one runs it.
func TestWhatIsDueAgainIsNoTrouble(t *testing.T) {
	n := newNode(t)
	old := n.script("010", "010", "0")
	before := scripts(old)
	ok(t, Reconcile(t.Context(), n.items(before), n.journal))
	n.ran()
	slow := n.script("020", "020", "0") // it takes as long as it takes for the first one to be due again
	slow.Data = "#!/bin/sh\nsed -i '/\"name\":\"010\"/s/\"start\":\"20/\"start\":\"19/' " + n.root + "/state/exec/*/run.json\n"
	next := scripts(old, slow)
	next.Sysctl = []spec.Sysctl{{Key: "vm/swappiness", Value: "30"}}
	r := Transact(t.Context(), n.items(next), n.items(before), n.journal, nil)
	if r.Err != nil || r.Health != spec.HealthOK || n.read("proc/sys/vm/swappiness") != "30" {
		t.Errorf("result %+v", r)
	}
	for _, s := range r.Items {
		if s.Name == "exec" && s.Applied != 2 {
			t.Errorf("%+v", s)
		}
	}
}
