// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// victim marks a process that is killed: what it does, at which step, its bootstrap and
// its root.
const victim = "CAISSON_TEST_VICTIM"

// steps counts what a process does: questions to its context before a write, records
// after one, questions to the registry. It is killed at one of them.
type steps struct {
	context.Context
	left *atomic.Int64
}

func (s steps) step() {
	if s.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it is delivered at once, to one of the threads
	}
}

func (s steps) Err() error { s.step(); return s.Context.Err() }

func die(t *testing.T, place string) {
	f := strings.SplitN(place, "|", 3)
	at, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{machine: &machine{t: t, root: f[2]}}
	data, err := os.ReadFile(r.root + "/bootstrap.json")
	if err != nil {
		t.Fatal(err)
	}
	var b spec.Bootstrap
	if err := spec.Decode(data, &b); err != nil {
		t.Fatal(err)
	}
	ctx := steps{t.Context(), new(atomic.Int64)}
	ctx.left.Store(at)
	o := r.options()
	o.Within, o.Say = 50*time.Millisecond, func(string, ...any) { ctx.step() }
	o.Fetch = func(b spec.Bootstrap, way track.Way) (oci.Source, error) {
		ctx.step()
		s, err := track.Open(b, way)
		return cable{s, r.root + link, &r.asked, func() {}, nil}, err
	}
	n, err := Open(t.Context(), o, &b)
	if err != nil {
		t.Fatal(err)
	}
	switch f[0] {
	case "apply":
		_, err = n.cycle.Apply(ctx)
	case "rollback":
		_, err = n.Rollback(ctx, "", 0)
	default:
		_, err = n.cycle.Sync(ctx)
	}
	t.Log(err)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// kill runs a process that is killed at a step, or after a time, and reports whether it
// survived.
func (r *remote) kill(act string, at int, after time.Duration) bool {
	r.t.Helper()
	data, err := spec.Encode(r.bootstrap())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.root+"/bootstrap.json", data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestATrialThatIsKilled$", "-test.count=1")
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%s", victim, act, at, r.root))
	var out strings.Builder
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		r.t.Fatal(err)
	}
	if after > 0 {
		time.AfterFunc(after, func() { _ = child.Process.Kill() })
	}
	err = child.Wait()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL) {
		r.t.Fatalf("%v\n%s", err, out.String())
	}
	return err == nil
}

// settled holds that the machine is as generation 1 says, at once, and that generation 2
// is not in effect however often it is asked for.
func (r *remote) settled(when string) {
	r.t.Helper()
	for range 2 {
		if st := r.must(r.applyOnce()); st.Generation != 1 || r.got() != "1" || r.swappiness("") != "10" {
			r.t.Fatalf("%s: generation %d, link %s, swappiness %s", when, st.Generation, r.got(), r.swappiness(""))
		}
		if _, err := r.syncOnce(); err != nil && !strings.Contains(err.Error(), "was undone") {
			r.t.Fatalf("%s: %v", when, err)
		}
	}
	s := r.state()
	if s.Trial == nil || s.Trial.Reason == "" || s.Current.Generation != 1 {
		r.t.Fatalf("%s: %+v", when, s.Trial)
	}
}

// A change on trial is undone wherever the agent is killed: while it is made, while it is
// tested, while it is undone, and while an operator is waited for.
func TestATrialThatIsKilled(t *testing.T) {
	if place := os.Getenv(victim); place != "" { // other tests start it, too
		die(t, place)
		return
	}
	require.Slow(t)
	t.Parallel()
	tried := func(t *testing.T) *remote {
		r := newRemote(t)
		r.up()
		r.publishLink(2, "a", "20", "0")
		return r
	}
	waiting := func(t *testing.T) *remote {
		r := newRemote(t)
		r.up()
		r.publishConfirm(2, "a", "20", "1")
		return r
	}
	over := func(t *testing.T) *remote {
		r := waiting(t)
		r.must(r.syncOnce())
		r.expire()
		return r
	}
	for name, row := range map[string]struct {
		make  func(*testing.T) *remote
		act   string
		least int
	}{
		"by reach": {tried, "sync", 15}, "by an operator": {waiting, "sync", 10}, "while it is undone": {over, "apply", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := 0
			for at := 1; ; at++ {
				r := row.make(t)
				survived := r.kill(row.act, at, 0)
				if s := r.state(); s.Trial.Pending() && s.Trial.Ends != 0 {
					r.expire()
				}
				if name == "by an operator" && r.state().Trial == nil { // it was killed before it began
					r.must(r.syncOnce())
					r.expire()
				}
				r.settled(fmt.Sprintf("killed at step %d", at))
				if survived {
					break
				}
				steps = at
			}
			if t.Logf("killed at %d steps", steps); steps < row.least {
				t.Errorf("%d steps: it tests too little", steps)
			}
			for range 5 {
				r := row.make(t)
				after := time.Duration(10+rand.IntN(250)) * time.Millisecond
				r.kill(row.act, 1<<40, after)
				if s := r.state(); s.Trial.Pending() && s.Trial.Ends != 0 {
					r.expire()
				}
				if name == "by an operator" && r.state().Trial == nil {
					r.must(r.syncOnce())
					r.expire()
				}
				r.settled(fmt.Sprintf("killed after %s", after))
			}
		})
	}
}

// An operator's way back is gone to its end, or was never begun, wherever the agent is killed.
func TestARollbackThatIsKilled(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	returned := 0
	for at := 1; ; at++ {
		r := newRemote(t)
		r.up()
		r.publishLink(2, "a", "20", "1")
		r.must(r.syncOnce())
		r.entered("root2", *r.state().Current) // a boot of what it goes back from
		r.must(r.applyOnce())
		survived := r.kill("rollback", at, 0)
		st := r.must(r.applyOnce())
		want, value := uint64(2), "20"
		if r.state().Hold != nil {
			want, value = 1, "10"
			returned++
		}
		if st.Generation != want || r.state().Current.Generation != want || r.swappiness("") != value || len(st.Drift) > 0 {
			t.Fatalf("killed at step %d, with the hold %+v: generation %d, current %+v, swappiness %s, %+v", at, r.state().Hold, st.Generation, r.state().Current, r.swappiness(""), st.Drift)
		}
		if survived {
			if want != 1 || returned < 20 || returned == at {
				t.Errorf("of %d steps %d led back: it tests too little", at, returned)
			}
			return
		}
	}
}
