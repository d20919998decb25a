// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// A script that hangs ends with the change, which is taken back, rejected, and in the
// black box.
func TestAScriptThatHangs(t *testing.T) {
	m := runningMachine(t)
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
		Exec: []spec.Exec{{Name: "a", Data: "#!/bin/sh\nexec sleep 1000\n", Blocking: "foreground", Timeout: 900, OnFailure: "rollback"}}})
	n, err := Open(t.Context(), Options{Root: m.root, Say: t.Logf, Made: time.Second}, m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	st, err := n.Sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it was not made within 1s") {
		t.Errorf("error %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if st == nil || st.Generation != 1 || m.swappiness("") != "10" || st.Rejected == nil {
		t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
	}
	if events, names := m.blackBox(); !slices.Equal(names, []string{"up", "taken-back"}) || events[1].Item != "exec" || !strings.Contains(events[1].Why, "it was not made within 1s: apply exec did not end") {
		t.Errorf("%+v", events)
	}
	if st := m.sync(); st.Generation != 1 || m.swappiness("") != "10" {
		t.Errorf("it is tried again: %+v", st)
	}
}

// A change that the end of the agent interrupts says nothing about the generation: it is
// taken back, and the next agent makes it.
func TestTheAgentEndsDuringAChange(t *testing.T) {
	m := runningMachine(t)
	started := m.root + "/started"
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
		Exec: []spec.Exec{{Name: "a", Data: "#!/bin/sh\n[ -e " + started + " ] && exit 0\ntouch " + started + "\nexec sleep 1000\n", Blocking: "foreground", Timeout: 900, OnFailure: "rollback"}}})
	n, err := Open(t.Context(), Options{Root: m.root, Say: t.Logf}, m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	go func() {
		for range 6000 {
			if _, err := os.Stat(started); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		end()
	}()
	if _, err := n.Sync(ctx); err == nil {
		t.Error("no error")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if got := m.swappiness(""); got != "10" {
		t.Errorf("swappiness %s", got)
	}
	if st := m.sync(); st.Generation != 2 || st.Rejected != nil || m.swappiness("") != "20" {
		t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
	}
}

// hanging marks the process whose change hangs in a system call: its root and bootstrap.
const hanging = "CAISSON_TEST_HANGS"

// A system call that waits, here for the other end of a pipe, ends with the agent. The
// next one makes the node as it was, and does not try again what hangs.
func TestASystemCallThatHangs(t *testing.T) {
	if root := os.Getenv(hanging); root != "" {
		hang(t, root)
		return
	}
	m := runningMachine(t)
	if err := syscall.Mkfifo(m.root+"/proc/sys/vm/ghost", 0o600); err != nil {
		t.Fatal(err)
	}
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/ghost", Value: "1"}, {Key: "vm/swappiness", Value: "20"}}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestASystemCallThatHangs$", "-test.count=1", "-test.v")
	child.Env = append(os.Environ(), hanging+"="+m.root)
	out, err := child.CombinedOutput()
	if ctx.Err() != nil || err == nil || !strings.Contains(string(out), "this agent ends") {
		t.Fatalf("%v, %v\n%s", ctx.Err(), err, out)
	}
	events, names := m.blackBox()
	if !slices.Equal(names, []string{"up", "overdue"}) {
		t.Fatalf("%q\n%s", names, out)
	}
	if e := events[1]; e.Generation != 2 || e.Item != "sysctl" || !strings.Contains(e.Why, "check sysctl does not end") || !strings.Contains(e.Did, "generation 1") {
		t.Errorf("%+v", e)
	}
	for range 2 {
		if st := m.sync(); st.Generation != 1 || m.swappiness("") != "10" || st.Rejected == nil || !strings.Contains(st.Rejected.Reason, "check sysctl") {
			t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
		}
	}
}

// hang asks for what hangs; abandon ends this process.
func hang(t *testing.T, root string) {
	o := Options{Root: root, Made: 500 * time.Millisecond, Say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	n, err := Open(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Sync(t.Context())
	t.Fatal("it went on: ", err)
}
