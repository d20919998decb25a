// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", "cat; pwd"}, Dir: "/", Input: []byte("asked "), Most: 100})
	if err != nil || string(out) != "asked /\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", "echo half; exit 3"}, Most: 100}); err == nil || out != nil {
		t.Errorf("a program that failed: %q, %v", out, err)
	}
	var failed *Failed
	if _, err := Run(t.Context(), Command{Argv: []string{"sh", "-c", "echo nothing here; exit 1"}, Most: 100}); !errors.As(err, &failed) || string(failed.Printed) != "nothing here\n" || err.Error() != "exit status 1" {
		t.Errorf("what a program that failed printed: %+v, %v", failed, err)
	}
	if out, err := Run(t.Context(), Command{Argv: []string{"cat", "/dev/zero"}, Most: 100}); err != nil || len(out) != 100 {
		t.Errorf("an answer without an end: %d bytes, %v", len(out), err)
	}
	if _, err := Run(t.Context(), Command{Argv: []string{"/no/such/program"}, Most: 100}); err == nil {
		t.Error("a program that is not there was run")
	}
}

// family is a program with a child and a grandchild that runs on; pid waits for the latter.
func family(t *testing.T) (argv []string, pid func() int) {
	file := filepath.Join(t.TempDir(), "pid")
	argv = []string{"sh", "-c", "sh -c 'sleep 1000 & echo $! >" + file + ".new; mv " + file + ".new " + file + "; wait' & wait"}
	return argv, func() (pid int) {
		wait(t, "the grandchild to start", func() bool {
			text, err := os.ReadFile(file)
			if err != nil {
				return false
			}
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
			return err == nil
		})
		if gone(pid) {
			t.Fatal("the grandchild has ended by itself")
		}
		return pid
	}
}

// TestRunEndsAll: what a program started ends with it.
func TestRunEndsAll(t *testing.T) {
	argv, grandchild := family(t)
	enough := errors.New("it is enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Command{Argv: argv, Most: 100})
		done <- err
	}()
	pid := grandchild()
	cancel(enough)
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("the error is %v", err)
	}
	wait(t, "the grandchild to end", func() bool { return gone(pid) })
}

// TestKillInOurGroup: as TestRunEndsAll, where somebody sits at a terminal.
func TestKillInOurGroup(t *testing.T) {
	argv, grandchild := family(t)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := grandchild()
	if err := kill(cmd); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the program ended by itself")
	}
	wait(t, "the grandchild to end", func() bool { return gone(pid) })
}

// gone reports whether a process has ended, waited for or not.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}
