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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
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
