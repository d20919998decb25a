// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
)

// loginKey is the key with which root logs in, and the file that ssh reads it from.
type loginKey struct {
	file   string
	signer ssh.Signer
}

func newLoginKey(file string) (k loginKey, err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return k, err
	}
	if k.signer, err = ssh.NewSignerFromKey(private); err != nil {
		return k, err
	}
	block, err := ssh.MarshalPrivateKey(private, "caisson try")
	if err != nil {
		return k, err
	}
	k.file = file
	return k, os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}

// credentials let root in: lines of tmpfiles.d(5), which systemd takes since version 252.
// Whatever the site says of root's logins, the key counts.
func (k loginKey) credentials() map[string]string {
	line := func(path, text string) string {
		return "f+~ " + path + " 0644 root root - " + base64.StdEncoding.EncodeToString([]byte(text)) + "\n"
	}
	return map[string]string{"tmpfiles.extra": line(paths.KeysDir+"/root", string(ssh.MarshalAuthorizedKey(k.signer.PublicKey()))) +
		line("/etc/ssh/sshd_config.d/0-caisson-try.conf",
			"Match User root\n\tPermitRootLogin prohibit-password\n\tAuthorizedKeysFile "+paths.KeysDir+"/%u\n")}
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
	cmd := exec.CommandContext(ctx, "ssh", "-q", "-F", "none", "-i", b.login.file, "-p", port,
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@"+host)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if _, ended := err.(*exec.ExitError); ended && ctx.Err() == nil { //nolint:errorlint // as Run returns it
		return nil
	}
	return err
}
