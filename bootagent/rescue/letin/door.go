// SPDX-License-Identifier: Apache-2.0

package letin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
)

// Systemd holds the calls to the running systemd.
type Systemd interface {
	State(ctx context.Context, unit string) (state string, since time.Time, err error)
	Do(ctx context.Context, job, unit string) error
	Console(ctx context.Context, c process.Terminal) error
}

// Doors are those of a system.
type Doors struct {
	Root    string  // prefix of every path, for tests
	Program string  // this one, as sshd is to start it
	Systemd Systemd // nil where none runs: then nothing has to be told
}

// Follow opens what is open by the book, and shuts the rest: called often, it does nothing where
// all is as it should be. What could not be opened does not keep the rest shut.
func (d Doors) Follow(ctx context.Context, o *rescue.Open, up time.Duration) error {
	left := o.Left(up)
	open := left > 0 && len(o.SSHKeys) > 0
	return errors.Join(d.ssh(ctx, open), hangUp(d.Root, func(by string) bool { return leftOf(o, up, by) == 0 }), d.console(ctx, o, left))
}

// sshDir is read before the rest of sshd's settings, and dropIn sorts before those of a layer:
// of two values sshd takes the first.
const (
	sshDir = "/etc/ssh/sshd_config.d"
	dropIn = "0-caisson-rescue.conf"
	sshd   = "ssh.service"
	active = "active"
)

// settings let root in by these keys alone: where the layer forbids root, its other keys and
// certificates must not count because an operator is let in. A client offers others before the right
// one, of which each counts as a try.
func (d Doors) settings() string {
	return "# While somebody is let in by a rescue statement; the agent removes it.\n" +
		"Match User root\n\tPermitRootLogin prohibit-password\n\tPubkeyAuthentication yes\n\tMaxAuthTries 20\n" +
		"\tAuthenticationMethods publickey\n\tAuthorizedKeysFile none\n\tTrustedUserCAKeys none\n" +
		"\tAuthorizedKeysCommand " + d.Program + " " + paths.RescueKeys + " %k\n\tAuthorizedKeysCommandUser root\n"
}

// ssh has sshd ask for the keys, or not any more.
func (d Doors) ssh(ctx context.Context, open bool) error {
	w := new(safepath.Walk)
	defer w.Close()
	dir, err := w.Hold(filepath.Join(d.Root, sshDir))
	if errors.Is(err, fs.ErrNotExist) && !open {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	defer dir.Close() // what matters was synced
	is, err := dir.Look(dropIn, 4<<10)
	if err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	if right := is.Type() == unix.S_IFREG && string(is.Content) == d.settings(); open && right || !open && is.Mode == 0 {
		return nil
	}
	if open {
		err = dir.Put(dropIn, safepath.Thing{Mode: unix.S_IFREG | 0o600, UID: os.Geteuid(), GID: os.Getegid(), Content: []byte(d.settings())})
	} else {
		err = dir.Remove(dropIn)
	}
	if err == nil {
		err = d.reload(ctx)
	}
	return fault.In(err, "ssh")
}

// reload has sshd read its settings. One that does not run reads them when it starts.
func (d Doors) reload(ctx context.Context) error {
	if d.Systemd == nil {
		return nil
	}
	state, _, err := d.Systemd.State(ctx, sshd)
	if err != nil || state != active {
		return err
	}
	return d.Systemd.Do(ctx, "reload", sshd)
}

// keyLine returns the line that sshd reads for root where it was offered one of the keys, "" for another,
// and the key's name. What it begins is this program, and nothing else: no forward of a port or socket.
func keyLine(o *rescue.Open, up time.Duration, program, offered string) (line, name string) {
	if o.Left(up) == 0 {
		return "", ""
	}
	for _, key := range o.SSHKeys {
		if words := strings.Fields(key); len(words) > 1 && words[1] == offered {
			return fmt.Sprintf("restrict,pty,command=%q %s\n", program+" "+paths.RescueShell+" "+nameOf(key), key), nameOf(key)
		}
	}
	return "", ""
}

// onConsole is the name of the shell on the console, as [nameOf] gives one to a key.
const onConsole = "console"

// nameOf is a short name of a key.
func nameOf(key string) string { return fmt.Sprintf("%.8x", sha256.Sum256([]byte(key))) }

// leftOf is for how long a session that began by a key, or on the console, is open yet: it ends, too,
// when a later statement names neither.
func leftOf(o *rescue.Open, up time.Duration, by string) time.Duration {
	named := o != nil && (by == onConsole && o.Console || slices.ContainsFunc(o.SSHKeys, func(key string) bool { return nameOf(key) == by }))
	if !named {
		return 0
	}
	return o.Left(up)
}

// ErrOver is for a session that nothing lets in any more.
var ErrOver = errors.New("no rescue statement is in effect")

// lookEvery is how often a session looks for how long it is open yet: its own clock stands still
// while the machine is suspended, and the key may be revoked.
const lookEvery = 2 * time.Second

// runShell runs what an operator asked sshd for, a shell where that is nothing, until it ends or
// nothing is left, as left says. Then all that it has started is ended, and the connections that the
// same key let in. What of it goes on after it is noted to end with them. It returns the exit code.
func runShell(ctx context.Context, root, by string, left func() time.Duration) (int, error) {
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
			return 1, errors.Join(errors.New("the time of the rescue is over"), endBelow(os.Getpid()),
				hangUp(root, func(other string) bool { return other == by }))
		}
		select {
		case err := <-ended:
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code, err = max(exit.ExitCode(), 1), nil
			}
			for _, pid := range below(os.Getpid()) {
				err = errors.Join(err, note(root, pid, by))
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
	if o == nil || !o.Console && o.Getty == "" {
		return nil
	}
	if !o.Console { // an earlier statement opened it
		left = 0
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
		if err == nil && o.Getty != "" {
			err = d.Systemd.Do(ctx, "start", o.Getty)
		}
		if err == nil {
			o.Getty = ""
		}
	}
	return fault.In(err, "console")
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
	return d.Systemd.Console(ctx, process.Terminal{Name: shellUnit, TTY: "/dev/" + tty,
		Args: []string{d.Program, paths.RescueShell, onConsole}, Limit: left, InPlaceOf: getty})
}
