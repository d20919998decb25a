// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Group runs commands as process groups of this process, which must live as long
// as they do. The zero value is ready for use.
type Group struct {
	mu   sync.Mutex
	runs map[string]*member
}

// member is a run of this process.
type member struct {
	pid   int
	limit time.Duration
	done  chan struct{} // closed at its end
	err   error         // how that was, from then on
	late  atomic.Bool   // its limit ended it
	heard atomic.Bool   // somebody was told so: what it left running goes on
}

// end is how it ended.
func (m *member) end() error {
	m.heard.Store(true)
	if m.late.Load() {
		return &Exit{Timeout: m.limit}
	}
	return exitOf(m.err)
}

// Start starts c. The score by which the kernel chooses whom to kill is put back
// to 0 before the program starts: the agent's own is not for others.
func (g *Group) Start(ctx context.Context, c Command) (id string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if c.MemoryMax > 0 || c.CPUQuota > 0 || c.TasksMax > 0 {
		return "", errors.New("its limits of memory, processors and tasks need systemd, which does not run here")
	}
	log, err := openLog(c.Log)
	if err != nil {
		return "", err
	}
	defer log.Close() // the child has its own
	env, err := withSecrets(c.Env, c.Secrets)
	if err != nil {
		return "", err
	}
	args := c.Args
	if spared() {
		args = append([]string{"/bin/sh", "-c", `echo 0 >/proc/self/oom_score_adj; exec "$@"`, "sh"}, args...)
	}
	cmd := &exec.Cmd{Path: args[0], Args: args, Env: env, Dir: c.Dir, Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	_, born, ok := Stat(cmd.Process.Pid)
	if !ok {
		born = "gone" // before this process could look
	}
	m := &member{pid: cmd.Process.Pid, limit: c.Limit, done: make(chan struct{})}
	go func() {
		m.err = cmd.Wait()
		close(m.done)
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[string]*member{}
	}
	id = fmt.Sprintf("%d/%s", m.pid, born)
	g.runs[id] = m
	return id, nil
}

// spared reports whether the kernel kills this process later than others.
func spared() bool {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && bad == nil && n < 0
}

// Wait returns when the program has ended, with nil, an *Exit, or ErrUnknown for
// a run of another process. Its limit ends the whole group.
func (g *Group) Wait(ctx context.Context, id string) error {
	m := g.take(id, false)
	if m == nil {
		return ErrUnknown
	}
	var over <-chan time.Time
	if m.limit > 0 {
		timer := time.NewTimer(m.limit)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-m.done:
	case <-over:
		m.late.Store(true)
		m.stop()
	case <-ctx.Done():
		return ctx.Err()
	}
	return m.end()
}

// End ends a run with its group, unless its end is known, and forgets it.
func (g *Group) End(id string) error {
	if m := g.take(id, true); m != nil && !m.heard.Load() {
		m.stop()
	}
	return nil
}

// stop ends the group. It may outlive its leader, so the last word is a SIGKILL in any case.
func (m *member) stop() {
	_ = syscall.Kill(-m.pid, syscall.SIGTERM) // it may have gone by itself
	select {
	case <-m.done:
	case <-time.After(grace):
	}
	_ = syscall.Kill(-m.pid, syscall.SIGKILL) // it may have gone by itself
	<-m.done
}

func (g *Group) take(id string, forget bool) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.runs[id]
	if forget {
		delete(g.runs, id)
	}
	return m
}

// Running reports whether the program of a run is still there, also of a run that
// another process of this program began.
func (g *Group) Running(id string) bool {
	text, born, ok := strings.Cut(id, "/")
	pid, err := strconv.Atoi(text)
	if !ok || err != nil {
		return false
	}
	_, now, ok := Stat(pid)
	return ok && now == born
}

// Stat reads a process's parent, and when it started, field 22 of /proc/PID/stat, see
// proc_pid_stat(5). With the pid that names one process of a boot. One that has ended and was not
// waited for is none.
func Stat(pid int) (parent int, started string, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	words := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // its name may be anything
	if err != nil || len(words) < 20 || words[0] == "Z" || words[0] == "X" {
		return 0, "", false
	}
	parent, err = strconv.Atoi(words[1])
	return parent, words[19], err == nil
}

// exitOf is how os/exec says that a program ended.
func exitOf(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &Exit{Signal: status.Signal()}
	}
	return &Exit{Code: exit.ExitCode()}
}
