// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
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

// A look at what runs that hangs in a system call ends with the agent, too. Nothing is
// rejected: the next agent looks again.
func TestALookThatHangs(t *testing.T) {
	if root := os.Getenv(hanging); root != "" {
		n, err := Open(t.Context(), hasty(root), nil)
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv(hanging+"_EARLY") != "" {
			_, err = n.Early(t.Context(), []string{"sysctl"})
		} else {
			_, err = n.Apply(t.Context())
		}
		t.Fatal("it went on: ", err)
	}
	for _, early := range []string{"", "1"} {
		m := runningMachine(t)
		at := m.root + "/proc/sys/vm/swappiness"
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(at, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestALookThatHangs$", "-test.count=1", "-test.v")
		child.Env = append(os.Environ(), hanging+"="+m.root, hanging+"_EARLY="+early)
		out, err := child.CombinedOutput()
		if ctx.Err() != nil || err == nil || !strings.Contains(string(out), "this agent ends") {
			t.Fatalf("%v, %v\n%s", ctx.Err(), err, out)
		}
		events, names := m.blackBox()
		if !slices.Equal(names, []string{"up", "hung"}) {
			t.Fatalf("%q\n%s", names, out)
		}
		if e := events[1]; e.Generation != 1 || e.Item != "sysctl" || !strings.Contains(e.Why, "check sysctl does not end") || !strings.Contains(e.Did, "looks again") {
			t.Errorf("%+v", e)
		}
		if err := errors.Join(os.Remove(at), os.WriteFile(at, []byte("60\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if st := m.apply(); st.Generation != 1 || st.Rejected != nil || st.Health != spec.HealthOK || m.swappiness("") != "10" {
			t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
		}
	}
}

// hasty are the options of an agent that gives what it does half a second.
func hasty(root string) Options {
	return Options{Root: root, Made: 500 * time.Millisecond, Say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
}

// hang asks for what hangs; abandon ends this process.
func hang(t *testing.T, root string) {
	n, err := Open(t.Context(), hasty(root), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Sync(t.Context())
	t.Fatal("it went on: ", err)
}
