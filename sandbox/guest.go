// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/sandbox/picture"
)

// guest is the machine, and the way into it.
type guest struct {
	arch    string
	login   machine.Key
	noKVM   error              // why the processor is emulated; nil is KVM
	end     context.CancelFunc // of the machine and what it boots from; nil before
	machine *machine.Machine
	session *machine.Session
}

// Emulated returns why the processor is emulated, nil where KVM runs the machine.
func (g *guest) Emulated() error { return g.noKVM }

// Used is the processor time that the machine has had.
func (g *guest) Used() (time.Duration, error) {
	if g.machine == nil {
		return 0, nil
	}
	return g.machine.Used()
}

// DownError is the error of a node that does not come up.
type DownError struct{ Lines []string } // of the console

func (d *DownError) Error() string {
	return "the node does not come up: " + strings.Join(d.Lines, "\n")
}

// ends are lines by which a console says that its node does not come up by itself.
var ends = []string{"THIS NODE DOES NOT COME UP", "Kernel panic - not syncing", "You are in emergency mode"}

// logIn waits until root can log in, or the console says that this will not be.
func (g *guest) logIn(ctx context.Context, secure bool) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	last := ends
	if secure {
		last = append(slices.Clone(ends), "Access Denied") // by the firmware
	}
	go func() {
		if end, err := g.machine.Console.Wait(waiting, 0, last...); err == nil {
			stop(g.down(waiting, end))
		}
	}()
	session, err := g.machine.Login(waiting, "root", g.login.Signer)
	if err != nil {
		var down *DownError
		switch {
		case ctx.Err() != nil: // the machine ends with it, whatever the node does
			return err
		case errors.As(context.Cause(waiting), &down):
			return down
		case errors.Is(err, machine.ErrEnded):
			return &DownError{lines(g.machine.Console.Tail(10))}
		}
		return err
	}
	if g.session != nil {
		_ = g.session.Close() // of the boot before
	}
	g.session = session
	return nil
}

// down returns what the console says from a line on, once it has said all of it.
func (g *guest) down(ctx context.Context, end string) *DownError {
	said, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text := g.machine.Console.String()
	from := strings.Index(text, end)
	_, _ = g.machine.Console.Wait(said, from, strings.Repeat("-", 72)) // of a screen; a panic has no end
	all := lines(g.machine.Console.String()[from:])
	if i := slices.IndexFunc(all, func(line string) bool { return strings.Contains(line, strings.Repeat("-", 72)) }); i > 0 {
		all = all[:i]
	}
	return &DownError{all[:min(len(all), 12)]}
}

// lines are those of a console's text.
func lines(text string) []string {
	return strings.Split(strings.TrimSpace(plain.WithoutSequences(text)), "\n")
}

// Run runs a command line on the node as root, and returns what it prints, cut off where that is long.
func (g *guest) Run(ctx context.Context, command string) (string, error) {
	return g.session.Run(ctx, command)
}

// Picture takes a picture of the machine by this program, which is put there and taken away
// again. attributes are patterns of files below /sys.
func (g *guest) Picture(ctx context.Context, attributes []string) (p picture.Picture, err error) {
	if runtime.GOARCH != g.arch {
		return nil, cli.Usage("", "a picture is taken by this program, which is of %s, and the machine is of %s", runtime.GOARCH, g.arch)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close() // only read
	const dir = "/run/" + picture.Program
	put := fmt.Sprintf("mkdir -p %[1]s && cat >%[1]s/%[2]s && chmod 700 %[1]s/%[2]s", dir, picture.Program)
	if _, err := g.session.Send(ctx, put, self); err != nil {
		return nil, fmt.Errorf("put the program into the machine: %w", err)
	}
	defer func() {
		_, gone := g.Run(ctx, "rm -r "+dir)
		err = errors.Join(err, gone)
	}()
	command := append([]string{dir + "/" + picture.Program}, plain.Each(attributes, cli.ShellWord)...)
	out, err := g.Run(ctx, strings.Join(command, " "))
	if err != nil {
		return nil, fmt.Errorf("take a picture: %w", err)
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		return nil, fmt.Errorf("read the picture: %w", err)
	}
	return p, nil
}

// deviceTime is how long systemd waits for the console's device, in place of 90 seconds: an
// emulated processor that others use, too, may take longer, and nobody starts its getty later.
const deviceTime = "[Unit]\nJobRunningTimeoutSec=20min\n"

// credentials let root in: lines of tmpfiles.d(5), which systemd takes since version 252.
// Whatever the site says of root's logins, the key counts. A systemd before 256 passes over the
// setting of the console.
func (g *guest) credentials() map[string]string {
	line := func(path, text string) string {
		return "f+~ " + path + " 0644 root root - " + base64.StdEncoding.EncodeToString([]byte(text)) + "\n"
	}
	login := line(paths.KeysDir+"/root", string(ssh.MarshalAuthorizedKey(g.login.Signer.PublicKey()))) +
		line("/etc/ssh/sshd_config.d/0-caisson-try.conf",
			"Match User root\n\tPermitRootLogin prohibit-password\n\tAuthorizedKeysFile "+paths.KeysDir+"/%u\n")
	return map[string]string{"tmpfiles.extra": login, "systemd.unit-dropin.dev-" + machine.SerialLine(g.arch) + ".device": deviceTime}
}

// Shell gives a terminal, or whatever else stands for it, to a shell of root in the machine.
// How the shell's last command ended does not matter.
func (g *guest) Shell(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	if err := machine.CheckTools(g.arch, "ssh"); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(g.machine.SSH())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "ssh", "-q", "-F", "none", "-i", g.login.File, "-p", port,
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@"+host)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if _, ended := err.(*exec.ExitError); ended && ctx.Err() == nil { //nolint:errorlint // as Run returns it
		return nil
	}
	return err
}
