// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/stalled"
)

// units answers for two units.
type units struct{ run string }

func (u units) Run(_ context.Context, unit string) (string, string, error) {
	switch unit {
	case "good.service":
		return "active", u.run, nil
	case "dead.service":
		return "failed", u.run, nil
	}
	return "", "", errors.New("systemd says nothing")
}

func prober(t *testing.T) Prober {
	var now atomic.Int64
	return Prober{Root: t.TempDir(), Log: t.TempDir(), Runner: new(process.Group), Units: units{"1"}, Now: func() int64 { return now.Add(1) }}
}

// TestAServerThatIsGone: a file whose server says nothing is not an answer within the time of
// its check, however often it is looked at, and the other checks have theirs.
func TestAServerThatIsGone(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := prober(t)
	p.Root = "/"
	checks := []spec.HealthCheck{{Name: "gone", File: stalled.Dir(t) + "/ready", Timeout: 1, Interval: 1}, {Name: "here", File: "/proc/self", Timeout: 60, Interval: 1}}
	var r Record
	for n := range int64(3) {
		r = p.Look(t.Context(), r, checks)
		if gone, here := r.Checks["gone"], r.Checks["here"]; gone.Failures != n+1 || gone.Why != "no answer within 1s" || here.Failures != 0 || here.Since == 0 {
			t.Fatalf("%+v", r.Checks)
		}
	}
}

// A check that is about nothing that the agent can look at does not hold.
func TestCheckAboutNothing(t *testing.T) {
	_, err := prober(t).look(t.Context(), spec.HealthCheck{Name: "later", Timeout: 1, Interval: 1}, time.Second)
	if err == nil || !strings.Contains(err.Error(), `check "later"`) {
		t.Errorf("it holds, or says not which: %v", err)
	}
}

// Each kind of check holds where it should, and says in words why it does not.
func TestProbes(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := prober(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/closed":
			w.WriteHeader(http.StatusUnauthorized)
		case "/slow":
			<-r.Context().Done()
		}
	}))
	defer page.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()                             // the test is over
	nobody, err := net.Listen("tcp", "127.83.0.1:0") // where no other program gets the port
	if err != nil {
		t.Fatal(err)
	}
	refused := nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Root, "ready"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		check spec.HealthCheck
		why   string // "" where it holds
	}{
		{spec.HealthCheck{File: "/ready"}, ""},
		{spec.HealthCheck{File: "/absent"}, "not there"},
		{spec.HealthCheck{Unit: "good.service"}, ""},
		{spec.HealthCheck{Unit: "dead.service"}, "dead.service is failed"},
		{spec.HealthCheck{Unit: "other.service"}, "systemd says nothing"},
		{spec.HealthCheck{TCP: silent.Addr().String()}, ""},
		{spec.HealthCheck{TCP: refused}, "refused"},
		{spec.HealthCheck{HTTP: page.URL}, ""},
		{spec.HealthCheck{HTTP: page.URL + "/away"}, "it answers 302"},
		{spec.HealthCheck{HTTP: page.URL + "/away", Status: 302}, ""},
		{spec.HealthCheck{HTTP: page.URL + "/closed", Status: 200}, "it answers 401, not 200"},
		{spec.HealthCheck{HTTP: page.URL + "/slow"}, "no answer within 1s"},
		{spec.HealthCheck{HTTP: "http://" + silent.Addr().String()}, "no answer within 1s"},
		{spec.HealthCheck{Command: []string{"/bin/true"}}, ""},
		{spec.HealthCheck{Command: []string{"/bin/sh", "-c", "echo one; echo it is cold; exit 3"}}, "exit status 3: it is cold"},
		{spec.HealthCheck{Command: []string{"/no/such/program"}}, "no such file"},
		{spec.HealthCheck{Command: []string{"/bin/sleep", "60"}}, "did not end within 1s"},
		{spec.HealthCheck{Command: []string{"/bin/sh", "-c", `test "$CAISSON_CHECK" = c`}}, ""},
		{spec.HealthCheck{}, "looks at one thing"},
	} {
		c := tt.check
		c.Name, c.Timeout, c.Interval = "c", 60, 1 // a busy machine starts programs slowly
		if strings.Contains(tt.why, "1s") {
			c.Timeout = 1
		}
		r := p.Look(t.Context(), Record{}, []spec.HealthCheck{c})
		got := r.Checks["c"]
		switch {
		case got.Looked == 0:
			t.Errorf("%+v was not looked at", c)
		case tt.why == "" && (got.Since == 0 || got.Why != ""):
			t.Errorf("%+v: %+v", c, got)
		case tt.why != "" && (got.Since != 0 || got.Failures != 1 || !strings.Contains(got.Why, tt.why)):
			t.Errorf("%+v: %+v, want %q", c, got, tt.why)
		}
	}
	p.Units = nil
	if r := p.Look(t.Context(), Record{}, []spec.HealthCheck{{Name: "c", Unit: "good.service", Timeout: 1, Interval: 1}}); r.Checks["c"].Failures != 1 {
		t.Errorf("without systemd: %+v", r)
	}
}

// A look at one check does not wait for its turn behind another, looks only at what is
// due, and what was cut short by the agent's end counts for nothing.
func TestLook(t *testing.T) {
	p := prober(t)
	meets := func(name, other string) spec.HealthCheck { // it holds while the other one is looked at
		return spec.HealthCheck{Name: name, Command: []string{"/bin/sh", "-c", "cd " + p.Root + " && touch " + name + "; until test -e " + other + "; do sleep 0.01; done"}, Timeout: 120, Interval: 1000}
	}
	checks := []spec.HealthCheck{meets("a", "b"), meets("b", "a")}
	r := p.Look(t.Context(), Record{}, checks)
	if len(r.Checks) != 2 || r.Judge(checks).State != Passed {
		t.Errorf("%+v", r)
	}
	if again := p.Look(t.Context(), r, checks); again.Checks["a"] != r.Checks["a"] {
		t.Errorf("it was looked at before it was due: %+v", again)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := filepath.Join(p.Root, "began")
	if err := unix.Mkfifo(began, 0o600); err != nil {
		t.Fatal(err)
	}
	checks[0].Command = []string{"/bin/sh", "-c", "echo >" + began + "; exec /bin/sleep 30"}
	go func() {
		if _, err := os.ReadFile(began); err != nil { // which waits for the program
			t.Error(err)
		}
		cancel()
	}()
	if r := p.Look(ctx, Record{}, checks[:1]); len(r.Checks) != 0 || ctx.Err() == nil {
		t.Errorf("an agent that ends has found %+v", r)
	}
	if again := p.Look(t.Context(), Record{}, []spec.HealthCheck{{Name: "a", Command: []string{"/bin/true"}, Timeout: 60, Interval: 1}}); again.Checks["a"].Since == 0 { // it ends what was left
		t.Errorf("%+v", again)
	}
}

// A unit that systemd starts over and over again is active at each look.
func TestACrashLoopIsSeen(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	for name, text := range map[string]string{
		"loops.service":  "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep 0.3\nRestart=always\nRestartSec=0\n",
		"stays.service":  "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sleep 100\n",
		"absent.service": "",
	} {
		if text == "" {
			continue
		}
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var m process.Manager
	for _, name := range []string{"loops.service", "stays.service"} {
		if err := m.Do(t.Context(), "start", name); err != nil {
			t.Fatal(err)
		}
	}
	now := int64(0)
	p := Prober{Log: t.TempDir(), Runner: process.Service{}, Units: m, Now: func() int64 { return now }}
	look := func(name string) Verdict { // once a second
		checks := []spec.HealthCheck{{Name: "c", Unit: name, Timeout: 60, Interval: 1, Retries: 2, Soak: 4}}
		var r Record
		for now = 1; ; now++ {
			r = p.Look(t.Context(), r, checks)
			if v := r.Judge(checks); v.State != Waiting || now > 20 {
				return v
			}
			for waits := name == "loops.service"; waits; time.Sleep(10 * time.Millisecond) { // until it is active again
				state, run, err := m.Run(t.Context(), name)
				waits = err == nil && (run == r.Checks["c"].Mark || state != "active")
			}
		}
	}
	for name, want := range map[string]State{"loops.service": Failed, "stays.service": Passed, "absent.service": Failed} {
		if v := look(name); v.State != want {
			t.Errorf("%s: %+v", name, v)
		}
	}
	checks := []spec.HealthCheck{{Name: "c", Command: []string{"/bin/sh", "-c", "echo cold; exit 3"}, Timeout: 60, Interval: 1}}
	if r := p.Look(t.Context(), Record{}, checks); !strings.Contains(r.Checks["c"].Why, "exit status 3: cold") {
		t.Errorf("a command as a service: %+v", r)
	}
	left, err := exec.Command("systemctl", "list-units", "--all", "--plain", "--no-legend", "caisson-gate-*").CombinedOutput()
	if err != nil || len(left) > 0 {
		t.Errorf("looks leave %s, %v", left, err)
	}
}

// A change and an operation may be judged by one check at the same time: neither look
// ends the program of the other, or fails since it runs.
func TestTwoLooksAtOnce(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	checks := []spec.HealthCheck{{Name: "c", Command: []string{"/bin/sleep", "0.5"}, Timeout: 60, Interval: 1}}
	p := Prober{Log: t.TempDir(), Runner: process.Service{}, Now: func() int64 { return 1 }}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if r := p.Look(t.Context(), Record{}, checks); r.Judge(checks).State != Passed {
				t.Errorf("%+v", r)
			}
		})
	}
	both.Wait()
}

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == process.LaunchVerb {
		fmt.Fprintln(os.Stderr, process.Launch(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}
