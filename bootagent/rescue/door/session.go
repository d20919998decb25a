// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// ErrOver is for a session that nothing lets in any more.
var ErrOver = errors.New("no rescue statement is in effect")

// Session runs what somebody asked sshd for, a shell where that is nothing, until it ends or the
// time is over. When this program ends, sshd hangs the rest up. It returns the exit code.
func Session(ctx context.Context, left time.Duration) (int, error) {
	if left == 0 {
		return 1, ErrOver
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	shell := os.Getenv("SHELL")
	if shell == "" {
		shell = "/bin/sh"
	}
	args := []string{"-l"}
	if asked := os.Getenv("SSH_ORIGINAL_COMMAND"); asked != "" {
		args = []string{"-c", asked}
	}
	signal.Ignore(os.Interrupt, syscall.SIGQUIT, syscall.SIGTTOU) // they are meant for what runs
	c := exec.CommandContext(ctx, shell, args...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 1, errors.New("the time of the rescue is over")
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), nil
	case err != nil:
		return 1, err
	}
	return 0, nil
}
