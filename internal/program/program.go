// SPDX-License-Identifier: Apache-2.0

// Package program runs programs that an operator names and that answer a question: one that
// holds a key, one that prints a secret, one that keeps credentials. What a program has
// started ends with it when its time is over, and what it says to people comes to them as
// plain text, so much of it.
//
// It runs no shell, knows no question, and is not for programs of a node. Only oci/keys,
// oci/keychain and fleet/seal import it.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/plain"
)

// Command is a program and its question.
type Command struct {
	Argv  []string
	Dir   string // where it runs; here when empty
	Input []byte // what it reads
	Most  int    // bytes of an answer; what comes after them is cut off, and ends it
}

// maxSaid is how much of what a program says to people they see.
const maxSaid = 64 << 10

// grace is how long pipes may be held open by what a program leaves behind.
const grace = time.Second

// Failed is the error of a program that did not end well.
type Failed struct {
	Err     error
	Printed []byte // it is not an answer, but may say why there is none
}

func (f *Failed) Error() string { return f.Err.Error() }
func (f *Failed) Unwrap() error { return f.Err }

// Run returns what a program printed. With ctx it ends, and all that it started; the error is
// then the cause. Of a program that ran and failed it is [Failed].
func Run(ctx context.Context, c Command) ([]byte, error) {
	out := answer{left: c.Most}
	said, hears, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.Dir, bytes.NewReader(c.Input), &out, hears, grace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !atTerminal(), Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return kill(cmd) }
	err = cmd.Start()
	_ = hears.Close() // the program has its own
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(plain.NewWriter(os.Stderr, maxSaid), said) // the answer counts, whatever becomes of this
		close(over)
	}()
	if err == nil {
		err = cmd.Wait()
	}
	select { // what it leaves behind may hold its end open
	case <-over:
	case <-time.After(grace):
	}
	_ = said.Close() // only read
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && (c.Most == 0 || out.left > 0):
		return nil, &Failed{err, out.text}
	}
	return out.text, nil
}

// atTerminal reports whether a person sits before this program. Then what it runs stays in its
// process group: in the background it could not ask for a PIN, and the key that interrupts
// reaches all of the group.
func atTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close() // only asked
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// kill ends a program and what it started.
func kill(cmd *exec.Cmd) error {
	if cmd.SysProcAttr.Setpgid {
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	var errs []error
	for _, pid := range tree(cmd.Process.Pid) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("end process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// tree returns a process and its children, and theirs.
func tree(pid int) []int {
	pids := []int{pid}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return pids // it is gone, or the kernel does not tell
	}
	for _, word := range strings.Fields(string(children)) {
		if child, err := strconv.Atoi(word); err == nil {
			pids = append(pids, tree(child)...)
		}
	}
	return pids
}

// answer takes so much, and then refuses more.
type answer struct {
	text []byte // in no bytes.Buffer: its ReadFrom would go round Write
	left int
}

func (a *answer) Write(p []byte) (int, error) {
	n := min(len(p), a.left)
	a.left -= n
	a.text = append(a.text, p[:n]...)
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}
