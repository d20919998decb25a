// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"os/exec"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
)

// deviceTime is how long systemd waits for the console's device, in place of 90 seconds: an
// emulated processor that others use, too, may take longer, and nobody starts its getty later.
const deviceTime = "[Unit]\nJobRunningTimeoutSec=20min\n"

// credentials let root in: lines of tmpfiles.d(5), which systemd takes since version 252.
// Whatever the site says of root's logins, the key counts. A systemd before 256 passes over the
// setting of the console.
func (b *Box) credentials() map[string]string {
	line := func(path, text string) string {
		return "f+~ " + path + " 0644 root root - " + base64.StdEncoding.EncodeToString([]byte(text)) + "\n"
	}
	login := line(paths.KeysDir+"/root", string(ssh.MarshalAuthorizedKey(b.login.Signer.PublicKey()))) +
		line("/etc/ssh/sshd_config.d/0-caisson-try.conf",
			"Match User root\n\tPermitRootLogin prohibit-password\n\tAuthorizedKeysFile "+paths.KeysDir+"/%u\n")
	return map[string]string{"tmpfiles.extra": login, "systemd.unit-dropin.dev-" + machine.SerialLine(b.arch) + ".device": deviceTime}
}

// Shell gives a terminal, or whatever else stands for it, to a shell of root in the machine.
// How the shell's last command ended does not matter.
func (b *Box) Shell(ctx context.Context, in io.Reader, out, errs io.Writer) error {
	if err := machine.CheckTools(b.arch, "ssh"); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(b.machine.SSH())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "ssh", "-q", "-F", "none", "-i", b.login.File, "-p", port,
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@"+host)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if _, ended := err.(*exec.ExitError); ended && ctx.Err() == nil { //nolint:errorlint // as Run returns it
		return nil
	}
	return err
}
