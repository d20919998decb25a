// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/internal/paths"
)

// ErrOver is for a session that nothing lets in any more.
var ErrOver = errors.New("no rescue statement is in effect")

// lookEvery is how often a session looks for how long it is open yet: its own clock stands still
// while the machine is suspended, and the key may be revoked.
const lookEvery = 2 * time.Second

// Session runs what an operator asked sshd for, a shell where that is nothing, until it ends or
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

const shellUnit = "caisson-rescue"

// console has a shell of root on the console for what is left, or ends it and gives the console
// back. A shell that an operator left comes again, as long as it is open.
func (d Doors) console(ctx context.Context, o *rescue.Open, left time.Duration) error {
	if o == nil || !o.Console {
		return nil
	}
	if d.Systemd == nil {
		if left > 0 {
			return errors.New("console: systemd does not run here")
		}
		return nil
	}
	state, _, err := d.Systemd.State(ctx, shellUnit+".service")
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	switch runs := state == active; {
	case left > 0 && !runs:
		err = d.begin(ctx, o, left)
	case left == 0:
		if runs {
			err = d.Systemd.Do(ctx, "stop", shellUnit+".service")
		}
		if o.Getty != "" {
			err = errors.Join(err, d.Systemd.Do(ctx, "start", o.Getty))
		}
	}
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	return nil
}

// begin starts the shell in place of the getty that has the console.
func (d Doors) begin(ctx context.Context, o *rescue.Open, left time.Duration) error {
	tty, err := rescue.Terminal(d.Root)
	if err != nil {
		return err
	}
	getty := "serial-getty@" + tty + ".service"
	if number, ok := strings.CutPrefix(tty, "tty"); ok && strings.Trim(number, "0123456789") == "" {
		getty = "getty@" + tty + ".service"
	}
	if state, _, err := d.Systemd.State(ctx, getty); err != nil {
		return err
	} else if state == active {
		o.Getty = getty
	}
	return d.Systemd.Console(ctx, process.Terminal{Name: shellUnit, TTY: "/dev/" + tty, Args: []string{d.Program, paths.RescueShell, onConsole}, Limit: left, InPlaceOf: getty})
}
