// SPDX-License-Identifier: Apache-2.0

package configcheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if after, err := filepath.Glob("/run/caisson-check-*"); err != nil || len(after) != len(before) {
		t.Errorf("left behind: %v, %v", after, err)
	}
}

// A program that fails for another reason, or does not end, refuses nothing; one that says much is
// cut off; another root's is asked there.
func TestAsksNoMoreThanTheText(t *testing.T) {
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
	ask := func(ctx context.Context) error { return Ask(ctx, root, "/etc/nftables.conf", "table x") }
	if err := ask(t.Context()); err != nil {
		t.Errorf("without a program: %v", err)
	}
	for script, says := range map[string]string{
		"echo no keys; exit 1": "", "echo $3: bad": "",
		"echo $3:1 bad; printf '\\033[2J'; exit 1":                   "/etc/nftables.conf:1 bad [2J",
		"read x <$3; echo $3: $x; exit 3":                            "/etc/nftables.conf: table x",
		"echo $3; while :; do echo y; done | head -c 100000; exit 1": "/etc/nftables.conf y y",
	} {
		write("usr/sbin/nft", []byte("#!/bin/sh\n"+script+"\n"))
		if err := ask(t.Context()); (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), strings.ReplaceAll(says, " [2J", "[2J"))) || err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: %v", script, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
