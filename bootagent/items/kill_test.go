// SPDX-License-Identifier: Apache-2.0

package items

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// victim marks the process that is killed: directory and number of the write.
const victim = "CAISSON_TEST_VICTIM"

// A real SIGKILL, in a process of its own, at every seventh write: what it left
// is put right by the next process, forwards and backwards.
func TestSigkill(t *testing.T) {
	if place := os.Getenv(victim); place != "" {
		die(t, place)
		return
	}
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	for n := 1; ; n += 7 {
		m := newMachine(t)
		before := m.snapshot()
		if err := m.journal.Close(); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0], "-test.run=^TestSigkill$", "-test.count=1")
		child.Env = append(os.Environ(), victim+"="+strconv.Itoa(n)+":"+m.root)
		out, err := child.CombinedOutput()
		var exit *exec.ExitError
		survived := err == nil
		if !survived && !(errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL) {
			t.Fatalf("write %d: %v\n%s", n, err, out)
		}
		m.start()
		if n%2 == 0 {
			if r := Reconcile(t.Context(), m.items(m.whole()), m.journal); r.Err != nil || len(r.Drift) > 0 {
				t.Fatalf("write %d, forwards: %+v", n, r)
			}
		}
		if r := Reconcile(t.Context(), m.items(spec.Items{}), m.journal); r.Err != nil || len(r.Drift) > 0 {
			t.Fatalf("write %d, backwards: %+v", n, r)
		}
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(m.snapshot(), "\n")); diff != "" {
			t.Fatalf("write %d (-before +after):\n%s", n, diff)
		}
		_ = exec.Command("ip", "link", "del", nic).Run() // the next machine makes its own
		if survived {
			if n < 30 {
				t.Fatalf("the run had only %d writes: it tests too little", n)
			}
			return
		}
	}
}

// And at any moment, also within a write.
func TestSigkillAnytime(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	rounds := 4
	if text := os.Getenv("CAISSON_SEQUENCES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = max(rounds, n/25)
	}
	for n := range rounds {
		m := newMachine(t)
		before := m.snapshot()
		if err := m.journal.Close(); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0], "-test.run=^TestSigkill$", "-test.count=1")
		child.Env = append(os.Environ(), victim+"=1000000:"+m.root)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rand.IntN(100_000)) * time.Microsecond
		time.Sleep(after)
		_ = child.Process.Kill()
		_ = child.Wait()
		t.Logf("round %d: killed after %v", n, after)
		m.start()
		entries := 0
		for _, it := range m.items(spec.Items{}) {
			entries += len(m.journal.Entries(it.Name()))
		}
		t.Logf("%d entries", entries)
		if n%2 == 0 {
			if r := Reconcile(t.Context(), m.items(m.whole()), m.journal); r.Err != nil || len(r.Drift) > 0 {
				t.Fatalf("forwards: %+v", r)
			}
		}
		if r := Reconcile(t.Context(), m.items(spec.Items{}), m.journal); r.Err != nil || len(r.Drift) > 0 {
			t.Fatalf("backwards: %+v", r)
		}
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(m.snapshot(), "\n")); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
		_ = exec.Command("ip", "link", "del", nic).Run() // the next machine makes its own
	}
}

// whole is a config with every part that choose knows, and a script.
func (m *machine) whole() spec.Items {
	var w spec.Items
	for seed := uint64(0); len(w.Mounts) < 2 || len(w.Limits) < 2 || len(w.Sysctl) < 3 || len(w.Sysfs) < 2 || w.Modules == nil || len(w.Units) < 1 || len(w.Ethtool) < 2 || w.Perm == nil || len(w.Perm.Paths) < 3; seed++ {
		w = m.choose(rand.New(rand.NewPCG(seed, 3)))
	}
	w.Exec = []spec.Exec{m.mark()}
	return w
}

// mark is a script that can be taken back.
func (m *machine) mark() spec.Exec {
	mark := m.root + "/srv/mark"
	return spec.Exec{Name: "mark", Data: "echo >" + mark + "\n", Revert: "rm -f " + mark + "\n"}
}

func die(t *testing.T, place string) {
	number, root, _ := strings.Cut(place, ":")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: root}
	m.start()
	ctx := &itemtest.Killer{Context: t.Context(), N: n, Die: func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}}
	if r := Reconcile(ctx, m.items(m.whole()), m.journal); r.Err != nil {
		t.Fatal(r.Err)
	}
}
