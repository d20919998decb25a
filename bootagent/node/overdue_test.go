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

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// tireless runs programs that nothing ends at their limit.
type tireless struct{ process.Runner }

func (r tireless) Start(ctx context.Context, c process.Command) (string, error) {
	c.Limit = 0
	return r.Runner.Start(ctx, c)
}

// A script that hangs beyond its timeout ends with the change, which is taken back, rejected,
// and in the black box. What the scripts before it could have taken is not waited for.
func TestAScriptThatHangs(t *testing.T) {
	require.Slow(t)
	t.Parallel() // it waits for most of its time, as those below do
	m := runningMachine(t)
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
		Exec: []spec.Exec{{Name: "a", Data: "#!/bin/sh\n", Blocking: "foreground", Timeout: 9000},
			{Name: "b", Data: "#!/bin/sh\nexec sleep 1000\n", Blocking: "foreground", Timeout: 1, OnFailure: "rollback"}}})
	n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Made: 5 * time.Second, Runner: tireless{new(process.Group)}}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	st, err := n.cycle.Sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it was not made within 5s") {
		t.Errorf("error %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if st == nil || st.Generation != 1 || m.swappiness("") != "10" || st.Rejected == nil {
		t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
	}
	if events, names := m.blackBox(); !slices.Equal(names, []string{"up", "taken-back"}) || events[1].Item != "exec" || !strings.Contains(events[1].Why, "it was not made within 5s: apply exec did not end") {
		t.Errorf("%+v", events)
	}
	if st := m.sync(); st.Generation != 1 || m.swappiness("") != "10" {
		t.Errorf("it is tried again: %+v", st)
	}
}

// What a script takes is not a part of the time of its change, nor of the deadline of a boot.
func TestAScriptHasATimeoutOfItsOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
		Exec: []spec.Exec{{Name: "a", Data: "#!/bin/sh\ncp " + m.root + paths.RunDeadline + " " + m.root + "/during\nexec sleep 3\n", Blocking: "foreground", Timeout: 900}}})
	m.boot()
	if err := uptime.BeginDeadline(m.root+paths.RunDeadline, m.kernel.Up()); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Made: 2 * time.Second}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	st, err := n.cycle.Apply(t.Context())
	if err := errors.Join(err, n.Close()); err != nil || st.Health != spec.HealthOK || m.swappiness("") != "20" {
		t.Errorf("%+v, %v, swappiness %s", st, err, m.swappiness(""))
	}
	if over, err := uptime.DeadlineOver(m.root+"/during", m.kernel.Up()+20*time.Minute, 15*time.Minute); over || err != nil {
		t.Errorf("the machine is started over while its script runs: %v, %v", over, err)
	}
	if over, err := uptime.DeadlineOver(m.root+"/during", m.kernel.Up()+40*time.Minute, 15*time.Minute); !over || err != nil {
		t.Errorf("the machine is never started over: %v, %v", over, err)
	}
	if _, err := os.Stat(m.root + paths.RunDeadline); err == nil {
		t.Error("the deadline of a boot that proved itself goes on")
	}
}

// A change that the end of the agent interrupts says nothing about the generation: it is
// taken back, and the next agent makes it.
func TestTheAgentEndsDuringAChange(t *testing.T) {
	m := runningMachine(t)
	started := m.root + "/started"
	m.publishItems(2, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
		Exec: []spec.Exec{{Name: "a", Data: "#!/bin/sh\n[ -e " + started + " ] && exit 0\ntouch " + started + "\nexec sleep 1000\n", Blocking: "foreground", Timeout: 900, OnFailure: "rollback"}}})
	n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), m.bootstrap())
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
	st, err := n.cycle.Sync(ctx)
	if err == nil {
		t.Error("no error")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if st == nil || st.SyncDetail != "the agent was to end while it was made; the next one makes it" || strings.Contains(st.HealthDetail, "not applied") {
		t.Errorf("the end of the agent reads as the change's failure: %+v", st)
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
	require.Slow(t)
	if root := os.Getenv(hanging); root != "" {
		hang(t, root)
		return
	}
	t.Parallel()
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

// hangs runs the test of a name in a process of its own, whose agent hangs and ends.
func (m *machine) hangs(test, how string) (events []spec.Event, names []string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$", "-test.count=1", "-test.v")
	child.Env = append(os.Environ(), hanging+"="+m.root, hanging+"_IN="+how)
	out, err := child.CombinedOutput()
	if ctx.Err() != nil || err == nil || !strings.Contains(string(out), "this agent ends") {
		m.t.Fatalf("%v, %v\n%s", ctx.Err(), err, out)
	}
	return m.blackBox()
}

// pipe makes a reader of a file wait for a writer at its other end, until put puts one
// with a value in its place.
func (m *machine) pipe(at string) (put func(value string)) {
	m.t.Helper()
	at = m.root + at
	if err := errors.Join(os.Remove(at), syscall.Mkfifo(at, 0o600)); err != nil {
		m.t.Fatal(err)
	}
	return func(value string) {
		m.t.Helper()
		if err := errors.Join(os.Remove(at), os.WriteFile(at, []byte(value+"\n"), 0o644)); err != nil {
			m.t.Fatal(err)
		}
	}
}

// A look at what runs that hangs in a system call ends with the agent, too, whichever process
// looks. Nothing is rejected: the next agent looks again.
func TestALookThatHangs(t *testing.T) {
	looks := map[string]func(*Node) error{
		"a look":          func(n *Node) error { _, err := n.cycle.Apply(t.Context()); return err },
		"an early look":   func(n *Node) error { _, err := n.Early(t.Context(), []string{"sysctl"}); return err },
		"the first look":  func(n *Node) error { _, err := n.cycle.Apply(t.Context()); return err },
		"a restore --all": func(n *Node) error { return n.RestoreAll(t.Context()) },
	}
	if root := os.Getenv(hanging); root != "" {
		n, err := Open(t.Context(), hasty(root), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal("it went on: ", looks[os.Getenv(hanging+"_IN")](n))
	}
	t.Parallel()
	for how := range looks {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := runningMachine(t)
			if how == "the first look" {
				m.boot()
				if err := os.RemoveAll(m.root + paths.RunStatus); err != nil {
					t.Fatal(err)
				}
			}
			put := m.pipe("/proc/sys/vm/swappiness")
			events, names := m.hangs("TestALookThatHangs", how)
			if names[len(names)-1] != "hung" {
				t.Fatalf("%q", names)
			}
			if e := events[len(events)-1]; e.Generation != 1 || e.Item != "sysctl" || !strings.Contains(e.Why, "sysctl does not end") || !strings.Contains(e.Did, "looks again") {
				t.Errorf("%+v", e)
			}
			put("60")
			if st := m.apply(); st.Generation != 1 || st.Rejected != nil || st.Health != spec.HealthOK || m.swappiness("") != "10" {
				t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
			}
		})
	}
}

// A roll back that hangs ends with the agent. The next one goes on with what ran, and the
// decision is forgotten with what it decided.
func TestARollbackThatHangs(t *testing.T) {
	require.Slow(t)
	if root := os.Getenv(hanging); root != "" {
		n, err := Open(t.Context(), hasty(root), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.Rollback(t.Context(), "", 0)
		t.Fatal("it went on: ", err)
	}
	t.Parallel()
	m := newMachine(t)
	m.enrolled()
	if err := os.WriteFile(m.root+"/proc/sys/vm/ghost", []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.publishItems(1, layerNamed("a"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/ghost", Value: "1"}, {Key: "vm/swappiness", Value: "10"}}})
	m.boot()
	m.apply()
	m.publish(2, layerNamed("a"), "20")
	m.sync()
	put := m.pipe("/proc/sys/vm/ghost")
	events, names := m.hangs("TestARollbackThatHangs", "")
	if names[len(names)-1] != "overdue" {
		t.Fatalf("%q", names)
	}
	if e := events[len(events)-1]; e.Generation != 1 || !strings.Contains(e.Did, "generation 2") {
		t.Errorf("%+v", e)
	}
	put("0")
	if st := m.apply(); st.Generation != 2 || st.Tracking != spec.Following || st.Rejected != nil || m.swappiness("") != "20" {
		t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
	}
	if st, err := m.rollback(); err != nil || st.Generation != 1 || m.swappiness("") != "10" {
		t.Errorf("%v, %+v", err, st)
	}
}

// Putting back what cut the node off ends, too, and begins again with the next agent.
func TestPuttingBackThatHangs(t *testing.T) {
	require.Slow(t)
	if root := os.Getenv(hanging); root != "" {
		n, err := Open(t.Context(), hasty(root), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.cycle.Apply(t.Context())
		t.Fatal("it went on: ", err)
	}
	t.Parallel()
	m := runningMachine(t)
	m.publish(2, layerNamed("a"), "20")
	m.sync()
	s := m.state()
	s.Trial = &state.Trial{Generation: *s.Current, Boot: "before", Confirm: state.ByReach, Within: 60}
	s.Current, s.Earlier = &s.Earlier[0], nil
	folder, err := state.Open(m.root + paths.State)
	if err == nil {
		err = folder.Save(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	put := m.pipe("/proc/sys/vm/swappiness")
	if events, names := m.hangs("TestPuttingBackThatHangs", ""); names[len(names)-1] != "hung" || !strings.Contains(events[len(events)-1].Why, "putting generation 1 back did not end within 6s: ") {
		t.Fatalf("%+v", events)
	}
	put("20")
	if st := m.apply(); st.Generation != 1 || m.swappiness("") != "10" {
		t.Errorf("%+v, swappiness %s", st, m.swappiness(""))
	}
}

// hasty are the options of an agent that gives what it does three seconds: enough for a busy
// machine to come to what hangs.
func hasty(root string) session.Options {
	return traced(session.Options{Root: root, Made: 3 * time.Second, Say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }})
}

// hang asks for what hangs; abandon ends this process.
func hang(t *testing.T, root string) {
	n, err := Open(t.Context(), hasty(root), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.cycle.Sync(t.Context())
	t.Fatal("it went on: ", err)
}
