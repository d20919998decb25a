// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/sandbox/picture"
	"github.com/caisson-os/caisson/sandbox/plug"
	"github.com/caisson-os/caisson/spec"
)

// Run runs a command line on the node as root, and returns what it prints, cut off where that is long.
func (b *Box) Run(ctx context.Context, command string) (string, error) {
	return b.session.Run(ctx, command)
}

// Published returns the overlay that was published last, its digest and its generation.
func (b *Box) Published() (*spec.Overlay, string, uint64) { return b.want, b.overlay, b.generation }

// ReadLayer reads a layer of the sandbox's registry.
func (b *Box) ReadLayer(ctx context.Context, digest string) (release.Layer, error) {
	return release.Read(ctx, b.registry, digest)
}

// Fetched is how many bytes the machine has fetched from the registry.
func (b *Box) Fetched() int64 { return b.fetched.Load() }

// Probe asks the machine over its network, where it was opened with what is kept.
func (b *Box) Probe() *plug.Probe { return b.probe }

// Picture takes a picture of the machine by this program, which is put there and taken away
// again. attributes are patterns of files below /sys.
func (b *Box) Picture(ctx context.Context, attributes []string) (p picture.Picture, err error) {
	if runtime.GOARCH != b.arch {
		return nil, cli.Usage("", "a picture is taken by this program, which is of %s, and the machine is of %s", runtime.GOARCH, b.arch)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close() // only read
	const dir = "/run/" + picture.Program
	put := fmt.Sprintf("mkdir -p %[1]s && cat >%[1]s/%[2]s && chmod 700 %[1]s/%[2]s", dir, picture.Program)
	if _, err := b.session.Send(ctx, put, self); err != nil {
		return nil, fmt.Errorf("put the program into the machine: %w", err)
	}
	defer func() {
		_, gone := b.Run(ctx, "rm -r "+dir)
		err = errors.Join(err, gone)
	}()
	command := dir + "/" + picture.Program
	for _, a := range attributes {
		command += " " + cli.ShellWord(a)
	}
	out, err := b.Run(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("take a picture: %w", err)
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		return nil, fmt.Errorf("read the picture: %w", err)
	}
	return p, nil
}

// watch puts a prober into the machine's network.
func (b *Box) watch() error {
	b.plug.Between = cmp.Or(b.plug.Between, &machine.Switch{})
	card, err := net.ParseMAC(b.plug.MACs[0])
	if err != nil {
		return err
	}
	guest, mine := netip.MustParseAddr("10.0.2.15"), netip.MustParseAddr("10.0.2.77") // of QEMU's own network
	if n := b.plug.Network; n.Prefix.IsValid() {
		guest = n.Address
		used := map[netip.Addr]bool{n.Address: true, n.Router: true, n.DNS: true, b.plug.Registry.Addr(): true}
		for mine = n.Prefix.Addr().Next(); used[mine]; {
			mine = mine.Next()
		}
	}
	b.probe = plug.NewProbe(b.plug.Between, card, guest, mine)
	return nil
}

// counting counts what is sent.
func (b *Box) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&counter{w, b}, r) })
}

type counter struct {
	http.ResponseWriter
	of *Box
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.of.fetched.Add(int64(n))
	return n, err
}

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
