// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// A change that was taken back is an error, and health says so until something
// else is published: a pipeline must not take it for applied.
func TestAChangeThatWasTakenBackIsAnError(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	bad := spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}, Exec: []spec.Exec{{Name: "a", Data: "#!/no/such\n", Rerun: "never"}}}
	m.publishItems(2, layerNamed("a"), bad)
	n := m.open()
	st, err := n.cycle.Sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "generation 2 was not applied: ") {
		t.Errorf("error %v", err)
	}
	check := func(when string, st *spec.Status) {
		t.Helper()
		if st == nil || st.Health != spec.HealthDegraded || st.Sync != spec.SyncBehind || st.Generation != 1 {
			t.Errorf("%s: %+v", when, st)
		}
	}
	check("at once", st)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	check("at the next pass", m.apply())
	m.publish(3, layerNamed("a"), "10")
	if st := m.sync(); st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent {
		t.Errorf("after another was published: %s, %+v", st.Health, st.Drift)
	}
}

// What fails in the background fails the verb, and status agrees.
func TestAScriptThatFailsInTheBackground(t *testing.T) {
	m := newMachine(t)
	m.publishItems(1, layerNamed("a"), spec.Items{Exec: []spec.Exec{{Name: "a", Data: "sleep 0.2; exit 3\n", Rerun: "never", Blocking: "background"}}})
	m.boot()
	n := m.open()
	st, err := n.cycle.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st, err = n.Settle(t.Context(), st)
	if err != nil || st.Health != spec.HealthDegraded {
		t.Errorf("%s, %v", st.Health, err)
	}
	for _, i := range st.Items {
		if i.Name == "exec" && (i.State != spec.ItemDegraded || !strings.Contains(i.Error, "exit 3")) {
			t.Errorf("%+v", i)
		}
	}
}

// A revert script runs when a signed overlay has it, also one that is not run any
// more, and never because the journal says so.
func TestRevertScriptsAreSigned(t *testing.T) {
	m := newMachine(t)
	effect := t.TempDir()
	script := spec.Exec{Name: "a", Data: "touch " + effect + "/did\n", Revert: "test -e " + effect + "/gate && touch " + effect + "/undid\n", Rerun: "never"}
	m.publishItems(1, layerNamed("a"), spec.Items{Exec: []spec.Exec{script}})
	m.boot()
	m.apply()
	m.publishItems(2, layerNamed("a"), spec.Items{})
	n := m.open()
	if _, err := n.cycle.Sync(t.Context()); err == nil {
		t.Fatal("the revert script failed, and the change was applied")
	}
	evil := item.Entry{Item: exec.Name, Key: "b@0000000000000000", Scope: item.Root, Prior: item.Raw(nil),
		Applied: item.Raw(map[string]any{"hash": strings.Repeat("0", 64), "script": spec.Exec{Name: "b", Data: "touch " + effect + "/evil\n"}})}
	if err := n.session.Journal.Record(evil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(effect+"/gate", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.RestoreAll(t.Context()); err == nil || !strings.Contains(err.Error(), "no signed overlay on this node has it") {
		t.Errorf("the journal's own script: %v", err)
	}
	files, err := os.ReadDir(effect)
	if err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
	for _, f := range files {
		if f.Name() == "evil" {
			t.Error("a script that nobody signed was run")
		}
	}
}

// The records of what was done name who, what, from, to and why.
func TestChangesAreRecorded(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	var said strings.Builder
	open := func() *Node {
		n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, By: "ann/sync", Say: func(f string, a ...any) { fmt.Fprintf(&said, f+"\n", a...) }}), m.bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := open()
	if _, err := n.cycle.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Freeze("", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`change by=ann/sync item=sysctl key=vm.swappiness from=60 to=10 action=change generation=1 why=boot`,
		`promoted by=ann/sync generation=1 epoch=0 overlay=sha256:`,
		`frozen by=ann/sync generation=1 why=""`,
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no record %q in\n%s", want, &said)
		}
	}
	if _, err := os.Stat(m.root + paths.RunStatus); err != nil {
		t.Error(err)
	}
}

// What waits for a reboot is said where people and programs look for it, with its
// reason, and no longer when it does not wait any more. Lines of others stay.
func TestRebootRequired(t *testing.T) {
	m := runningMachine(t)
	read := func() (required bool, reasons string) {
		t.Helper()
		_, err := os.Stat(m.root + paths.RebootRequired)
		text, _ := os.ReadFile(m.root + paths.RebootReasons) // without the file there are no reasons
		return err == nil, string(text)
	}
	if required, reasons := read(); required || reasons != "" {
		t.Fatalf("nothing waits: %v, %q", required, reasons)
	}
	m.publish(2, layerNamed("b"), "10")
	m.sync()
	if required, reasons := read(); !required || !strings.HasPrefix(reasons, "caisson: generation 2: reboot: its layer is not staged: ") {
		t.Errorf("a layer waits: %v, %q", required, reasons)
	}
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a"), KernelArgs: []string{"quiet"}}}, sign.Predicate{Generation: 3})
	m.confirm(time.Now())
	st := m.sync()
	if required, reasons := read(); !required || !strings.HasPrefix(reasons, "caisson: generation 3: arguments") ||
		!strings.Contains(st.ActivityDetail, " is staged: arguments are read") {
		t.Errorf("arguments wait: %v, %q, %s", required, reasons, st.ActivityDetail)
	}
	for range 2 { // the newest is as what runs
		m.publish(4, layerNamed("a"), "10")
		m.sync()
	}
	if required, reasons := read(); required || reasons != "" {
		t.Errorf("nothing waits any more: %v, %q", required, reasons)
	}
	for name, text := range map[string]string{paths.RebootRequired: "x\n", paths.RebootReasons: "linux-image\n"} {
		if err := os.WriteFile(m.root+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m.publish(5, layerNamed("b"), "10")
	m.sync()
	if _, reasons := read(); reasons != "linux-image\ncaisson: generation 5: reboot: not only a layer waits: linux-image\n" {
		t.Errorf("beside others: %q", reasons)
	}
	m.publish(6, layerNamed("a"), "10")
	m.sync()
	if required, reasons := read(); !required || reasons != "linux-image\n" {
		t.Errorf("others wait still: %v, %q", required, reasons)
	}
}
