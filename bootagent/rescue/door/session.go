// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrOver is for a session that nothing lets in any more.
var ErrOver = errors.New("no rescue statement is in effect")

// lookEvery is how often a session looks for how long it is open yet: its own clock stands still
// while the machine is suspended, and the key may be revoked.
const lookEvery = 2 * time.Second

// Session runs what somebody asked sshd for, a shell where that is nothing, until it ends or
// nothing is left, as left says. Then all that it has started is ended, and the connections.
// What of it goes on after it is noted to end with the rescue. It returns the exit code.
func Session(ctx context.Context, root string, left func() time.Duration) (int, error) {
	if left() == 0 {
		return 1, ErrOver
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // else daemons leave
		return 1, err
	}
	shell := os.Getenv("SHELL")
	if _, err := os.Stat("/bin/bash"); shell == "" && err == nil {
		shell = "/bin/bash"
	} else if shell == "" {
		shell = "/bin/sh"
	}
	args := []string{"-l"}
	if asked := os.Getenv("SSH_ORIGINAL_COMMAND"); asked != "" {
		args = []string{"-c", asked}
	}
	// They are meant for what runs, which would inherit it if they were ignored.
	meant := []os.Signal{os.Interrupt, syscall.SIGQUIT, syscall.SIGTTOU, syscall.SIGHUP}
	signal.Ignore(meant...)
	signal.Notify(make(chan os.Signal, 1), meant...)
	runtime.LockOSThread() // its end would be this process's to what it started
	c := exec.Command(shell, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		now := left()
		if now == 0 {
			return 1, errors.Join(errors.New("the time of the rescue is over"), endBelow(os.Getpid()), HangUp(root))
		}
		select {
		case err := <-ended:
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code, err = max(exit.ExitCode(), 1), nil
			}
			for _, pid := range below(os.Getpid()) {
				err = errors.Join(err, Note(root, pid))
			}
			return code, err
		case <-ctx.Done():
			return 1, errors.Join(ctx.Err(), endBelow(os.Getpid()))
		case <-time.After(min(now, lookEvery)):
		}
	}
}
