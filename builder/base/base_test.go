// SPDX-License-Identifier: Apache-2.0

package base

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/test/roottest"
)

// Keys are read from the layer alone, whatever a base says; units are enabled; no
// identity is in it.
func TestConfigure(t *testing.T) {
	r := roottest.New(t, map[string]string{
		"usr/bin/systemctl":                  "#!/bin/sh\necho \"$@\" >/enabled\n",
		"etc/machine-id":                     "0123456789abcdef0123456789abcdef\n",
		"etc/ssh/sshd_config.d/50-base.conf": "AuthorizedKeysFile .ssh/authorized_keys\n",
		"etc/resolv.conf":                    "nameserver 192.0.2.1\n",
	})
	if err := Configure(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	first, err := r.ReadDir("/etc/ssh/sshd_config.d")
	if err != nil || len(first) < 2 || filepath.Join("/etc/ssh/sshd_config.d", first[0]) != sshdFile {
		t.Errorf("sshd takes the first of %v, %v", first, err)
	}
	for name, want := range map[string]string{sshdFile: "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u\n", "/enabled": "systemd-networkd.service systemd-resolved.service"} {
		if got, err := r.ReadFile(name); err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), ".ssh/") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if got, err := r.ReadFile("/etc/machine-id"); err != nil || len(got) != 0 {
		t.Errorf("machine-id %q, %v", got, err)
	}
	if info, err := r.Lstat("/etc/resolv.conf"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("resolv.conf is %v, %v: it must follow systemd-resolved", info, err)
	}
	failing := roottest.New(t, map[string]string{"usr/bin/systemctl": "#!/bin/sh\necho no such unit >&2\nexit 1\n"})
	if err := Configure(t.Context(), failing); err == nil || !strings.Contains(err.Error(), "no such unit") {
		t.Errorf("a unit that cannot be enabled: %v", err)
	}
}

// What a node must not share and what differs each time goes; the rest stays.
func TestScrub(t *testing.T) {
	tree := t.TempDir()
	gone := []string{"etc/hostname", "etc/ssh/ssh_host_ed25519_key", "etc/passwd-", "var/log/dpkg.log", "var/log/apt/history.log", "var/lib/apt/lists/x_Packages",
		"var/lib/systemd/random-seed", "tmp/.x/y", "run/z", "usr/sbin/policy-rc.d", "var/cache/apt/archives/a.deb"}
	stay := []string{"etc/passwd", "etc/ssh/sshd_config", "var/log/journal.keep", "var/lib/apt/extended_states", "usr/sbin/x"}
	for _, pattern := range perhost.Patterns() {
		gone = append(gone, strings.ReplaceAll(pattern, "*", "x"))
	}
	for _, name := range append(append([]string{}, gone...), stay...) {
		roottest.Put(t, tree, map[string]string{name: "x"})
	}
	if err := Scrub(tree); err != nil {
		t.Fatal(err)
	}
	for _, name := range gone {
		if _, err := os.Lstat(filepath.Join(tree, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range stay {
		if _, err := os.Lstat(filepath.Join(tree, name)); err != nil {
			t.Error(err)
		}
	}
}
