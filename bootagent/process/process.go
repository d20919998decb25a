// SPDX-License-Identifier: Apache-2.0

// Package process runs a program together with everything that it starts, and
// ends all of that at a deadline.
//
// [Service] runs it as a transient service of systemd: its own cgroup, limits
// and out-of-memory score, so that nothing of it escapes and the agent is not
// the one to pay for it; it outlives a restart of the agent. [Group] is for where
// systemd does not run, in tests and in containers without it: a process group,
// which a program can leave by setsid(2). Both are a [Runner]. [Manager] asks the same systemd for
// jobs of units that are there. The package knows no scripts and no policy. Kinds
// of items and operations import it.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/internal/ownfiles"
)

// Runner runs a program with all that it starts. An id names a run also to a later
// process; one of which nothing is known ends with [ErrUnknown].
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
