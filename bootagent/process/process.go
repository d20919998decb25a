// SPDX-License-Identifier: Apache-2.0

// Package process runs a program together with everything that it starts, and
// ends all of that at a deadline.
//
// [Service] runs it as a transient service of systemd: its own cgroup, limits
// and out-of-memory score, so that no process escapes and the agent is not
// the one to pay for it; it outlives a restart of the agent. [Group] is for where
// systemd does not run, in tests and in containers without it: a process group,
// which a program can leave by setsid(2). Both are a [Runner]. [Manager] asks the same systemd for
// jobs of units that are there. The package knows no scripts and no policy. Kinds
// of items and operations import it.
package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// Runner runs a program with all that it starts. An id names a run also to a later
// process; one of which nothing is known ends with [ErrUnknown]. How a run ended is known
// until End: who waits writes it down before, or the next one takes the run for one that was cut.
type Runner interface {
	Start(ctx context.Context, c Command) (id string, err error)
	Wait(ctx context.Context, id string) error // nil, an *Exit, or why it cannot be known
	End(id string) error
	Running(id string) bool
}

// Command is a program to run.
type Command struct {
	Name    string            // of the service, without suffix; two of one name cannot run at once
	Args    []string          // Args[0] is an absolute path
	Env     []string          // all of it, NAME=value
	Dir     string            // working directory
	Log     string            // file that output is appended to; made when missing, mode 0600
	Secrets map[string]string // variables whose values are read from files when it starts, by the files' names
	Limit   time.Duration     // after which all of it is ended, 0 for never

	// What it may take with all that it starts; 0 means the default of systemd.
	MemoryMax int64 // bytes; above, the kernel ends it
	CPUQuota  int64 // percent of one processor
	TasksMax  int64 // processes and threads
}

// grace is the time between SIGTERM and SIGKILL.
const grace = 10 * time.Second

// ErrUnknown is returned for a run of which nothing is known any more, such as
// one from before a reboot.
var ErrUnknown = errors.New("nothing is known of how it ended")

// ErrRuns is returned, with its id, for a run of the same name that goes on.
var ErrRuns = errors.New("it runs already")

// ErrNoAnswer is returned where nobody can be asked how a run goes on: it may, and is asked for again.
var ErrNoAnswer = errors.New("systemd does not answer")

// Exit is how a program ended that did not end with exit code 0.
type Exit struct {
	Code    int            // exit code, 0 when a signal ended it
	Signal  syscall.Signal // 0 when it ended by itself
	Timeout time.Duration  // its limit, when that ended it
	Cause   string         // in systemd's words, such as oom-kill, where there is more to say
}

// Error implements error in the words of os/exec.
func (e *Exit) Error() string {
	text := fmt.Sprintf("exit status %d", e.Code)
	switch {
	case e.Timeout != 0:
		return fmt.Sprintf("did not end within %v", e.Timeout)
	case e.Signal != 0:
		text = "signal: " + e.Signal.String()
	}
	if e.Cause != "" {
		text += " (" + e.Cause + ")"
	}
	return text
}

// Status is the exit code as a shell shows it: 128+n when signal n ended it.
func (e *Exit) Status() int {
	switch {
	case e.Timeout != 0:
		return 128 + int(syscall.SIGTERM)
	case e.Signal != 0:
		return 128 + int(e.Signal)
	}
	return e.Code
}

// SystemdRuns reports whether systemd is this system's init, see sd_booted(3).
func SystemdRuns() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// maxSecret limits one variable in the kernel: MAX_ARG_STRLEN, see execve(2).
const maxSecret = 128 << 10

// withSecrets adds variables to an environment whose values are in files, by their names. It
// is called as late as can be, by the process that becomes the program: no file, no service of
// systemd and no argument has the values. What editors end a file with is not a part of one.
func withSecrets(env []string, files map[string]string) ([]string, error) {
	env = slices.Clone(env)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		value, err := ownfiles.ReadFile(files[name], maxSecret)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		text := strings.TrimSuffix(string(value), "\n")
		if strings.Contains(text, "\x00") {
			return nil, fmt.Errorf("variable %s: its secret has a NUL, which no variable can have", name)
		}
		env = append(env, name+"="+text)
	}
	return env, nil
}

// MaxLog bounds a log, in bytes: on a diskless node it lies in memory.
const MaxLog = 4 << 20

// openLog opens the log for appending. It may hold secrets.
func openLog(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}

// CapLog empties a log that grew too large. The program appends, so it goes on at
// the new end. A waiter for a program calls it every second or so.
func CapLog(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil // the program removed it: its own business
	}
	if err != nil || info.Size() <= MaxLog {
		return err
	}
	return os.WriteFile(name, []byte("(the log grew too large and was emptied)\n"), 0o600)
}

// KeepSmall caps the log of a run until it ends. Where that fails it gives up: the
// waiter for the run tries again.
func KeepSmall(r Runner, id, log string) {
	for r.Running(id) {
		time.Sleep(time.Second)
		if CapLog(log) != nil {
			return
		}
	}
}

// LaunchVerb is the argument with which a service starts this program, before
// the name of the file that Launch reads.
const LaunchVerb = "launch"

// launch holds the content of the file. Arguments and environment may hold secrets, and
// every user can ask systemd for those of a service.
type launch struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`

	Secrets map[string]string `json:"secrets,omitempty"` // names of files
}

// save writes the file for Launch.
func (c Command) save(file string) error {
	data, _ := json.Marshal(launch{c.Args, c.Env, c.Dir, c.Secrets}) // texts marshal
	return durable.WriteFile(file, data, 0o600)
}

// Launch replaces this process by the program that file describes and removes
// the file. It returns only with an error.
func Launch(file string) error {
	f, err := ownfiles.Open(file)
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	var l launch
	err = json.NewDecoder(f).Decode(&l)
	_ = f.Close()       // it was only read
	_ = os.Remove(file) // the next launch writes its own
	if err != nil || len(l.Args) == 0 {
		return fmt.Errorf("launch %s: not a command: %w", file, err)
	}
	if err := os.Chdir(l.Dir); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	env, err := withSecrets(l.Env, l.Secrets)
	if err != nil {
		return fmt.Errorf("launch %s: %w", l.Args[0], err)
	}
	return fmt.Errorf("launch %s: %w", l.Args[0], syscall.Exec(l.Args[0], l.Args, env))
}

// Terminal is a program of root that has a terminal to itself for a while.
type Terminal struct {
	Name      string // of the service, without suffix
	TTY       string // path of the device
	Args      []string
	Limit     time.Duration // after which systemd ends all of it
	InPlaceOf string        // unit that is stopped for it
}

// Console starts a program on a terminal, as debug-shell.service of systemd does.
func (m Manager) Console(ctx context.Context, t Terminal) error {
	type execStart struct {
		Path   string
		Args   []string
		Ignore bool
	}
	p := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	settings := []dbus.Property{
		p("Description", "Caisson: "+t.Name),
		p("Type", "exec"),
		p("ExecStart", []execStart{{t.Args[0], t.Args, false}}),
		p("Environment", []string{"HOME=/root", "USER=root", "LOGNAME=root"}),
		p("StandardInput", "tty"), p("StandardOutput", "tty"), p("StandardError", "tty"),
		p("TTYPath", t.TTY), p("TTYReset", true), p("TTYVHangup", true),
		p("IgnoreSIGPIPE", false), p("SendSIGHUP", true),
		p("RuntimeMaxUSec", uint64(t.Limit/time.Microsecond)),
		p("TimeoutStopUSec", uint64(grace/time.Microsecond)),
		p("Conflicts", []string{t.InPlaceOf}), p("After", []string{t.InPlaceOf}),
	}
	unit := t.Name + ".service"
	return m.ask(ctx, jobTime, func(ctx context.Context, d *dbus.Conn) error {
		if err := clear(ctx, d, unit); err != nil { // what ended before
			return err
		}
		done := make(chan string, 1)
		if _, err := d.StartTransientUnitContext(ctx, unit, "replace", settings, done); err != nil {
			return fmt.Errorf("start %s: %w", unit, err)
		}
		select {
		case result := <-done:
			if result != "done" {
				return fmt.Errorf("start %s: %s", unit, result)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w", unit, ctx.Err())
		}
	})
}

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
