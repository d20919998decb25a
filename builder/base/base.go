// SPDX-License-Identifier: Apache-2.0

// Package base makes the first tree of a layer: what Debian needs to boot with
// systemd, a kernel and its modules, and nothing more.
//
// [Bootstrap] drives mmdebstrap(1) over a repository of exact packages. What a
// node must not share with another (machine-id, host keys, random seeds) and
// what differs from build to build (logs, caches, backups) is removed by
// [Scrub], which the packages step uses as well.
package base

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/root"
)

// Include is what every Debian base has besides the essential packages, apt and
// the kernel. The agent needs systemd with networkd and resolved, udev, kmod and
// iproute2; operators need SSH and sudo; AppArmor's parser compiles the policy.
var Include = []string{
	"apparmor", "ca-certificates", "dbus", "ethtool", "iproute2", "kmod", "libpam-systemd",
	"openssh-server", "sudo", "systemd-resolved", "systemd-sysv", "udev",
}

// exclude keeps out what no node reads. Licences stay.
var exclude = []string{
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/locale/*", "path-include=/usr/share/locale/locale.alias",
	"path-exclude=/usr/share/lintian/*", "path-exclude=/usr/share/bug/*",
}

// Options say what to bootstrap.
type Options struct {
	Suite string
	Arch  string
	Repo  string   // flat repository of exactly the packages to install
	Names []string // packages asked for by name
	Epoch int64
	Line  func(string) // each line the tools say
}

// Bootstrap fills the folder tree, which must not exist.
func Bootstrap(ctx context.Context, tree string, o Options) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return &apt.MissingTool{Name: "mmdebstrap", Package: "mmdebstrap"}
	}
	args := []string{"mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--architectures=" + o.Arch,
		"--include=" + strings.Join(o.Names, ","), `--aptopt=APT::Install-Recommends "false"`, "--skip=check/empty"}
	for _, e := range exclude {
		args = append(args, "--dpkgopt="+e)
	}
	args = append(args, o.Suite, tree, "deb [trusted=yes] copy:"+(&url.URL{Path: o.Repo}).EscapedPath()+" ./")
	err := root.Isolated(ctx, root.Command{Args: args, Line: o.Line, Env: []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.Epoch)}})
	if err != nil {
		return fmt.Errorf("bootstrap %s: %w", o.Suite, apt.ReasonsOf(err))
	}
	if err := Configure(ctx, &root.Root{Upper: tree}); err != nil {
		return err
	}
	return Scrub(tree)
}

// units are enabled beside those that their packages enable.
var units = []string{"systemd-networkd.service", "systemd-resolved.service"}

// sshd reads the layer's keys too: homes may lie on a state disk, /etc never does.
const sshd = `# Keys of the layer's accounts live outside the homes.
AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%u
`

// Configure makes the tree usable as a root that caisson stacks.
func Configure(ctx context.Context, r *root.Root) error {
	files := []struct {
		name, text string
	}{
		{"/etc/machine-id", ""}, // empty: written into each root at boot
		{"/etc/apt/sources.list", "# Packages come with the layer, see caisson build.\n"},
		{"/etc/ssh/sshd_config.d/60-caisson.conf", sshd},
		{"/etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
	}
	for _, f := range files {
		if err := r.WriteFile(f.name, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	if err := r.MkdirAll("/etc/ssh/authorized_keys.d", 0o755); err != nil {
		return err
	}
	if err := r.Symlink("../run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf"); err != nil {
		return err
	}
	enable := append([]string{"systemctl", "--quiet", "enable"}, units...)
	var err error
	if len(r.Lowers) == 0 {
		err = root.Isolated(ctx, root.Command{Args: append([]string{"chroot", r.Upper}, enable...)})
	} else {
		err = r.Run(ctx, root.Command{Args: enable})
	}
	var exit *root.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("enable %s: %s", strings.Join(units, ", "), exit.Output)
	}
	return err
}

// leftovers are removed from every tree: a node's identity, and what differs
// each time. Patterns are those of filepath.Match.
var leftovers = []string{
	"etc/hostname", "etc/ssh/ssh_host_*", "etc/.pwd.lock", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-",
	"etc/apt/sources.list.d/0000*", "etc/ld.so.cache~",
	"usr/sbin/policy-rc.d",
	"var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/cache/apt/archives/lock", "var/cache/apt/archives/partial/*",
	"var/cache/debconf/*-old", "var/cache/ldconfig/aux-cache", "var/cache/man/*", "var/cache/fontconfig/*",
	"var/lib/apt/lists/*", "var/lib/dbus/machine-id", "var/lib/dpkg/*-old", "var/lib/dpkg/lock", "var/lib/dpkg/lock-frontend",
	"var/lib/dpkg/triggers/Lock", "var/lib/dpkg/updates/*", "var/lib/systemd/random-seed", "var/lib/systemd/credential.secret",
	"var/lib/urandom/random-seed", "var/log/*.log", "var/log/apt/*", "var/log/wtmp", "var/log/btmp", "var/log/lastlog", "var/log/faillog", "var/log/journal/*",
	"tmp/*", "tmp/.*", "var/tmp/*", "run/*", "run/.*", "dev/*", "root/.bash_history",
}

// Scrub removes the leftovers from a tree (or from an upper one: what it removes
// is never in the tree below).
func Scrub(tree string) error {
	for _, pattern := range leftovers {
		found, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := os.RemoveAll(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
