// SPDX-License-Identifier: Apache-2.0

package configcheck

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// Debian's own programs take what is right and not what is wrong, and leave nothing behind.
func TestAsksTheReader(t *testing.T) {
	require.Root(t)
	require.Tool(t, "visudo", "sshd")
	before, err := filepath.Glob("/run/caisson-check-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, text, says string }{
		{"/etc/sudoers.d/90-ops", "ops ALL=(ALL) NOPASSWD: ALL\n", ""},
		{"/etc/sudoers.d/90-ops", "ops ALL=(ALL) NOPASWD ALL\n", "/usr/sbin/visudo does not take it: /etc/sudoers.d/90-ops:1"},
		{"/etc/sudoers.d/90-ops", "%ADMINS ALL=(ALL) ALL\nUSERS ALL=(ALL) ALL\n", ""}, // an alias of another file
		{"/etc/sudoers", "Defaults = x\n", "/usr/sbin/visudo"},
		{"/etc/ssh/sshd_config.d/10-x.conf", "PermitRootLogin no\n", ""},
		{"/etc/ssh/sshd_config.d/10-x.conf", "PermitRootLogn no\n", "Bad configuration option"},
		{"/etc/motd", "ops ALL NOPASWD\n", ""},
		{"/etc/sudoers.d/a/b", "NOPASWD\n", ""},
	} {
		err := Ask(t.Context(), "/", c.path, c.text)
		if c.says == "" && err == nil {
			continue
		}
		if refused := new(Refused); !errors.As(err, &refused) || c.says == "" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %q: %v", c.path, c.text, err)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	for text, says := range map[string]string{"ops ALL=(ALL) ALL\n": "", "ops ALL=(ALL) NOPASWD ALL\n": "/usr/sbin/visudo does not take it: what it says is not shown, since the file is a secret"} {
		if err := os.WriteFile(secret, []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := AskSecret(t.Context(), "/etc/sudoers.d/90-ops", secret); (says != "" || err != nil) && (err == nil || err.Error() != says) {
			t.Errorf("a secret %q: %v", text, err)
		}
		if err := os.Remove(secret); err != nil {
			t.Fatal(err)
		}
	}
	if err := AskSecret(t.Context(), "/etc/sudoers.d/90-ops", secret); err != nil {
		t.Errorf("no secret: %v", err)
	}
	if after, err := filepath.Glob("/run/caisson-check-*"); err != nil || len(after) != len(before) {
		t.Errorf("left behind: %v, %v", after, err)
	}
}

// A root that nobody has entered yet has no /dev and no /proc, and its /run may be on a disk: its
// programs are asked all the same, and nothing stays mounted, or written.
func TestAsksInARootThatIsNotEntered(t *testing.T) {
	require.Root(t)
	require.Tool(t, "visudo", "sshd")
	runtime.LockOSThread() // and never unlocked: the thread and its namespace end with the test
	root := t.TempDir()
	if err := cmp.Or(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("/", root, "", unix.MS_BIND, ""), unix.Mount("tmpfs", root+"/dev", "tmpfs", 0, ""), unix.Mount("tmpfs", root+"/run", "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) }) // the namespace ends, too
	mounts := func() string {
		text, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := mounts()
	for _, c := range []struct{ path, text, says string }{
		{"/etc/sudoers.d/90-ops", "ops ALL=(ALL) NOPASSWD: ALL\n", ""},
		{"/etc/sudoers.d/90-ops", "ops ALL=(ALL) NOPASWD ALL\n", "/usr/sbin/visudo does not take it: /etc/sudoers.d/90-ops:1"},
		{"/etc/ssh/sshd_config.d/10-x.conf", "PermitRootLogin no\n", ""},
		{"/etc/ssh/sshd_config.d/10-x.conf", "PermitRootLogn no\n", "Bad configuration option"},
		{"/etc/nothing", "x", ""},
	} {
		err := Ask(t.Context(), root, c.path, c.text)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s %q: %v", c.path, c.text, err)
		}
		if hidden := Hide(err); (hidden == nil) != (err == nil) || hidden != nil && (strings.Contains(hidden.Error(), c.says) || !strings.Contains(hidden.Error(), "does not take it")) {
			t.Errorf("a secret: %v", hidden)
		}
	}
	left, err := os.ReadDir(root + "/run")
	if now := mounts(); err != nil || len(left) > 0 || now != before {
		t.Errorf("left behind: %v, %v\n%s", left, err, now)
	}
	if err := cmp.Or(unix.Mount("tmpfs", root+"/usr/sbin", "tmpfs", 0, ""), os.WriteFile(root+"/usr/sbin/visudo", nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	refused := new(Refused)
	if err := Ask(t.Context(), root, "/etc/sudoers", "x"); err == nil || errors.As(err, &refused) {
		t.Errorf("a program that cannot be started: %v", err)
	}
}

// A program that fails for another reason refuses nothing, one that does not end consents to
// nothing; one that says much is cut off; another root's is asked there.
func TestAsksNoMoreThanTheText(t *testing.T) {
	t.Parallel()
	require.Root(t)
	require.Tool(t, "busybox")
	root := t.TempDir()
	busybox, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/sh", busybox)
	write("run/x", nil)
	write("dev/x", nil)
	ask := func(ctx context.Context) error { return Ask(ctx, root, "/etc/sudoers", "table x") }
	if err := ask(t.Context()); err != nil {
		t.Errorf("without a program: %v", err)
	}
	for script, says := range map[string]string{
		"echo no keys; exit 1": "", "echo $3: bad": "",
		"echo $3:1 bad; printf '\\033[2J'; exit 1":                   "/etc/sudoers:1 bad [2J",
		"read x <$3; echo $3: $x; exit 3":                            "/etc/sudoers: table x",
		"echo $3; while :; do echo y; done | head -c 100000; exit 1": "/etc/sudoers y y",
	} {
		write("usr/sbin/visudo", []byte("#!/bin/sh\n"+script+"\n"))
		if err := ask(t.Context()); (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), strings.ReplaceAll(says, " [2J", "[2J"))) || err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: %v", script, err)
		}
	}
	write("usr/sbin/visudo", []byte("#!/bin/sh\nkill -STOP $$\n"))
	refused := new(Refused)
	if err := ask(t.Context()); err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "/etc/sudoers: no answer within 10s") {
		t.Errorf("no end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What a program says of other things than the text, as it is said by Debian's own, refuses nothing.
func TestVerdicts(t *testing.T) {
	const unit = "/etc/systemd/system/a.service"
	for _, c := range []struct{ path, text, said, says string }{
		{"/etc/nftables.conf", "", "/etc/nftables.conf:2:93-93: Error: syntax error, unexpected semicolon\n", "syntax error"},
		{"/etc/nftables.conf", "", "/etc/nftables.conf:1:1-32: Error: File not found: /etc/nftables.d/x.nft\n", ""},
		{"/etc/nftables.d/a.nft", "", "/etc/nftables.d/a.nft:1:15-19: Error: Could not process rule: No such file or directory\n", ""},
		{unit, "", unit + ":3: Unknown key 'Foo' in section [Service], ignoring.\n", "Unknown key"},
		{unit, "", "a.service: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.\nUnit a.service has a bad unit file setting.\n", "a.service: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing."},
		{unit + ".d/x.conf", "", "a.service: Service has more than one ExecStart= setting. Refusing.\n", "more than one"},
		{unit + ".d/x.conf", "", unit + ":3: Unknown key 'Foo' in section [Service], ignoring.\n", ""},
		{unit, "[Service]\nExecStart=/usr/bin/nothere\n", "a.service: Command /usr/bin/nothere is not executable: No such file or directory\n", "/usr/bin/nothere"},
		{unit, "[Unit]\nConditionPathExists=/usr/bin/nothere\n", "a.service: Command /usr/bin/nothere is not executable: No such file or directory\n", ""},
		{unit, "", "a.service: Command /etc/rc.local is not executable: No such file or directory\n", ""},
		{"/etc/systemd/system/syslog.socket", "", "syslog.socket: service syslog.service not loaded, socket cannot be started.\n", ""},
		{unit, "", "systemd-analyze: unrecognized option '--recursive-errors=no'\n", ""},
	} {
		argv, verdict := Question(c.path, c.text)
		err := verdict(c.said)
		if refused := new(Refused); (c.says == "") != (err == nil) || err != nil && (!errors.As(err, &refused) || refused.Path != c.path || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v %s: %v", argv, c.said, err)
		}
	}
	if err := Ask(t.Context(), "/", unit, "[Service]\nFoo=1\n"); err != nil {
		t.Errorf("a unit on a node: %v", err)
	}
}
