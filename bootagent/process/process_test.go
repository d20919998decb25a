// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/itemtest"
)

// TestMain lets the test binary be the program that services start.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == LaunchVerb {
		fmt.Fprintln(os.Stderr, Launch(os.Args[2]))
		os.Exit(127)
	}
	os.Exit(m.Run())
}

// runner holds the methods of both kinds.
type runner interface {
	Start(ctx context.Context, c Command) (id string, err error)
	Wait(ctx context.Context, id string) error
	End(id string) error
	Running(id string) bool
}

func sh(t *testing.T, text string, args ...string) Command {
	t.Helper()
	dir := t.TempDir()
	return Command{
		Name: "caisson-test-" + strconv.Itoa(os.Getpid()), Dir: dir, Log: filepath.Join(dir, "log"), Limit: time.Minute,
		Args: append([]string{"/bin/sh", "-c", text, "sh"}, args...), Env: []string{"PATH=/usr/bin:/bin", "A=b $HOME %n \"'"},
	}
}

// limit is that of a script which is to meet it. Before, on a busy machine, it writes down
// what it has started.
const limit = 3 * time.Second

// gate returns a command that waits until goOn is called.
func gate(t *testing.T) (wait string, goOn func()) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return "read x <" + name, func() {
		t.Helper()
		if err := os.WriteFile(name, []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func run(t *testing.T, r runner, c Command) error {
	t.Helper()
	id, err := r.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	err = r.Wait(t.Context(), id)
	if r.Running(id) {
		t.Errorf("%s still runs", id)
	}
	if err := r.End(id); err != nil {
		t.Error(err)
	}
	return err
}

func logOf(t *testing.T, c Command) string {
	t.Helper()
	text, err := os.ReadFile(c.Log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGroup(t *testing.T) { contract(t, new(Group)) }

func TestService(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	r := Service{}
	contract(t, r)
	t.Run("what left the group", func(t *testing.T) {
		c := sh(t, `setsid sleep 300 & echo $! >pid; echo $$ >main; grep -c caisson-test- /proc/self/cgroup; cat /proc/self/oom_score_adj`)
		if err := run(t, r, c); err != nil {
			t.Error(err)
		}
		if got := logOf(t, c); got != "1\n0\n" {
			t.Errorf("cgroups and score %q", got)
		}
		gone(t, c, "pid")
	})
	t.Run("what left the group, at the limit", func(t *testing.T) {
		c := sh(t, `setsid sleep 300 & echo $! >pid; sleep 300`)
		c.Limit = limit
		var exit *Exit
		if err := run(t, r, c); !errors.As(err, &exit) || exit.Timeout != limit {
			t.Errorf("ended with %v", err)
		}
		gone(t, c, "pid")
	})
	t.Run("asked for by a later process", func(t *testing.T) {
		wait, goOn := gate(t)
		id, err := r.Start(t.Context(), sh(t, wait+"; exit 5"))
		if err != nil {
			t.Fatal(err)
		}
		later := Service{}
		if !later.Running(id) {
			t.Error("it does not run")
		}
		goOn()
		var exit *Exit
		if err := later.Wait(t.Context(), id); !errors.As(err, &exit) || exit.Code != 5 {
			t.Errorf("ended with %v", err)
		}
		if err := later.End(id); err != nil {
			t.Error(err)
		}
	})
	t.Run("secrets", func(t *testing.T) {
		wait, goOn := gate(t)
		c := sh(t, wait, "hunter2")
		c.Env = append(c.Env, "P=hunter2")
		id, err := r.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command("sh", "-c", "systemctl show "+id+"; systemctl cat "+id).CombinedOutput()
		if err != nil || strings.Contains(string(said), "hunter2") {
			t.Errorf("%v\n%s", err, said)
		}
		goOn()
		if err := errors.Join(r.Wait(t.Context(), id), r.End(id)); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(c.Log + ".*"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("a group of a process that is spared", func(t *testing.T) { // as the agent is
		c := sh(t, "cat /proc/self/oom_score_adj; echo $1", "a b")
		if err := run(t, new(Group), c); err != nil {
			t.Error(err)
		}
		if got := logOf(t, c); got != "0\na b\n" {
			t.Errorf("score %q", got)
		}
	})
	t.Run("nothing is left", func(t *testing.T) {
		if said, err := exec.Command("systemctl", "list-units", "--all", "--plain", "--no-legend", "caisson-*").CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%v\n%s", err, said)
		}
	})
}

// contract checks the promises of every runner.
func contract(t *testing.T, r runner) {
	t.Run("sees what it was given", func(t *testing.T) {
		c := sh(t, `echo "$1|$A|$(pwd)"; env | grep -vc '^\(PWD\|A\|PATH\|SHLVL\|_\|OLDPWD\)='; echo err >&2; readlink /proc/self/fd/0`, `a $HOME %n "'`)
		if err := run(t, r, c); err != nil {
			t.Error(err)
		}
		want := `a $HOME %n "'|b $HOME %n "'|` + c.Dir + "\n0\nerr\n/dev/null\n"
		if got := logOf(t, c); got != want {
			t.Errorf("it saw %q, want %q", got, want)
		}
		if info, err := os.Stat(c.Log); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("log: %v, %v", info.Mode(), err)
		}
	})
	for text, want := range map[string]Exit{
		"exit 3":                            {Code: 3},
		"kill -TERM $$":                     {Signal: syscall.SIGTERM},
		"kill -KILL $$":                     {Signal: syscall.SIGKILL},
		"exec /no/such/program":             {Code: 127},
		"trap 'exit 9' TERM; kill -TERM $$": {Code: 9},
	} {
		t.Run(text, func(t *testing.T) {
			var exit *Exit
			if err := run(t, r, sh(t, text)); !errors.As(err, &exit) || *exit != want {
				t.Errorf("ended with %v, want %v", err, &want)
			}
		})
	}
	t.Run("limit", func(t *testing.T) {
		c := sh(t, `sleep 300 & echo $! >pid; wait`)
		c.Limit = limit
		begun := time.Now()
		var exit *Exit
		if err := run(t, r, c); !errors.As(err, &exit) || exit.Timeout != limit || exit.Status() != 143 {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(begun); took > 2*time.Minute { // the script would take longer
			t.Errorf("it took %v", took)
		}
		gone(t, c, "pid")
	})
	t.Run("ended", func(t *testing.T) {
		c := sh(t, `sleep 300 & echo $! >pid; wait`)
		id, err := r.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Running(id) {
			t.Error("it does not run")
		}
		for range 6000 {
			if text, err := os.ReadFile(c.Dir + "/pid"); err == nil && len(text) > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := r.Wait(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that was cut: %v", err)
		}
		if err := r.End(id); err != nil {
			t.Error(err)
		}
		if r.Running(id) {
			t.Error("it still runs")
		}
		gone(t, c, "pid")
		if err := r.Wait(t.Context(), id); !errors.Is(err, ErrUnknown) {
			t.Errorf("how it ended: %v", err)
		}
	})
	t.Run("two who wait", func(t *testing.T) {
		wait, goOn := gate(t)
		id, err := r.Start(t.Context(), sh(t, wait+"; exit 4"))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		for range cap(ended) {
			go func() { ended <- r.Wait(t.Context(), id) }()
		}
		goOn()
		for _, err := range []error{<-ended, <-ended, r.Wait(t.Context(), id)} {
			var exit *Exit
			if !errors.As(err, &exit) || exit.Code != 4 {
				t.Errorf("ended with %v", err)
			}
		}
		if err := r.End(id); err != nil {
			t.Error(err)
		}
		if err := r.Wait(t.Context(), id); !errors.Is(err, ErrUnknown) {
			t.Errorf("after it was forgotten: %v", err)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		for _, id := range []string{"caisson-none.service", "1/2", ""} {
			if r.Running(id) {
				t.Errorf("%q runs", id)
			}
		}
	})
}

// gone wants the process of a pid file to have ended; a zombie has.
func gone(t *testing.T, c Command, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for range 6000 { // a signal takes a moment
		if _, _, ok := Stat(pid); !ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still runs", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL) // the test has failed already
}

// secret is a command that compares a variable with what is in a file of root's.
func secret(t *testing.T, value string) Command {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(value), 0o400); err != nil {
		t.Fatal(err)
	}
	c := sh(t, `test "$TOKEN" = "$(cat "$1")"`, file)
	c.Secrets = map[string]string{"TOKEN": file}
	return c
}

func TestSecretsInTheEnvironment(t *testing.T) {
	for _, value := range []string{"hunter2", "hunter2\n", "a 'b' \"c\" $HOME %n \\ é\nand a line", "=", "-n"} {
		if err := run(t, new(Group), secret(t, value)); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
	c := secret(t, "a\x00b")
	if _, err := new(Group).Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "NUL") || strings.Contains(err.Error(), "a\x00b") {
		t.Errorf("a NUL: %v", err)
	}
	c.Secrets["TOKEN"] += ".gone"
	if _, err := new(Group).Start(t.Context(), c); err == nil {
		t.Error("a program starts without its secret")
	}
}

// The file that a service is started by has the name of the secret's file.
func TestALaunchHasNoSecret(t *testing.T) {
	c := secret(t, "hunter2")
	file := filepath.Join(t.TempDir(), "x.launch")
	if err := c.save(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(data), "hunter2") || !strings.Contains(string(data), c.Secrets["TOKEN"]) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestSecretsOfAService(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	c := secret(t, "a 'b' \"c\" $HOME %n \\ é\nand a line")
	if err := run(t, Service{}, c); err != nil {
		t.Error(err)
	}
	c = secret(t, "hunter2") // if it crashed, nobody would be given what is in its memory
	c.Args = []string{"/bin/grep", "-q", "^Max core file size  *1  *1  *bytes", "/proc/self/limits"}
	if err := run(t, Service{}, c); err != nil {
		t.Errorf("the limit of its dumps: %v", err)
	}
}
