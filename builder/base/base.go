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
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/perhost"
)

// Include lists the packages of every Debian base besides the essential packages, apt and
// the kernel. The agent needs systemd with networkd and resolved, udev, kmod and
// iproute2; operators need SSH and sudo; AppArmor's parser compiles the policy.
var Include = []string{
	"apparmor", "ca-certificates", "dbus", "ethtool", "iproute2", "kmod", "libpam-systemd",
	"openssh-server", "sudo", "systemd-resolved", "systemd-sysv", "udev",
}

// Recommended returns the packages of the base that Debian installs by Recommends or
// priority alone.
func Recommended() (names []string) {
	for _, r := range recommended {
		if r.in {
			names = append(names, r.name)
		}
	}
	return names
}

// Decided returns every package that the table has a word of.
func Decided() (names []string) {
	for _, r := range recommended {
		names = append(names, r.name)
	}
	return names
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
	Whole bool     // with what exclude keeps out
	Epoch int64
	Line  func(string) // each line the tools say

	// Answer sets the answers to debconf, once that is there and before the packages that
	// are asked for by name.
	Answer func(context.Context, *root.Root) error
}

// Bootstrap fills the empty upper tree of r. mmdebstrap unpacks the
// essential packages and runs none of their programs; that is for [root.Root.Run], which
// keeps the packages' scripts from the host, where mmdebstrap's chroot would not.
func Bootstrap(ctx context.Context, r *root.Root, o Options) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return apt.MissingTool("mmdebstrap", "mmdebstrap")
	}
	if err := r.MkdirAll("/", 0o755); err != nil {
		return err
	}
	args := []string{"mmdebstrap", "--mode=root", "--variant=extract", "--format=directory", "--architectures=" + o.Arch,
		"--include=?essential", "--include=apt", `--aptopt=APT::Install-Recommends "false"`, `--aptopt=APT::Sandbox::User "root"`,
		"--skip=check/empty,chroot/mount,cleanup/apt/cache"}
	for _, e := range exclude {
		if o.Whole {
			break
		}
		args = append(args, "--dpkgopt="+e)
	}
	args = append(args, o.Suite, r.Upper, "deb [trusted=yes] copy:"+(&url.URL{Path: o.Repo}).EscapedPath()+" ./")
	err := root.Isolated(ctx, []string{r.Work, r.Upper}, root.Command{Args: args, Env: []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.Epoch)}})
	if err != nil {
		return fmt.Errorf("unpack the essential packages of %s: %w", o.Suite, apt.ReasonsOf(err))
	}
	// mmdebstrap leaves those of this machine, which scripts of packages may keep.
	for _, name := range []string{"/etc/resolv.conf", "/etc/hostname"} {
		if err := r.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := apt.ForbidServices(r); err != nil {
		return err
	}
	// The unpacked packages depend on one another in circles; dpkg takes the order
	// that configuring them needs.
	err = r.Run(ctx, root.Command{Args: []string{"/bin/sh", "-c", "dpkg --install --force-depends --force-unsafe-io " +
		archives + "*.deb && rm " + archives + "*.deb"}, Line: o.Line})
	if err != nil {
		return fmt.Errorf("install the essential packages of %s: %w", o.Suite, apt.ReasonsOf(err))
	}
	if o.Answer != nil {
		if err := o.Answer(ctx, r); err != nil {
			return err
		}
	}
	if err := apt.Get(ctx, r, o.Repo, o.Line, append([]string{"install", "--"}, o.Names...)...); err != nil {
		return fmt.Errorf("install the base of %s: %w", o.Suite, err)
	}
	// The sandbox is mmdebstrap's business, not the layer's.
	if err := r.WriteFile("/etc/apt/apt.conf.d/99mmdebstrap", []byte("APT::Install-Recommends \"false\";\n"), 0o644); err != nil {
		return err
	}
	if err := Configure(ctx, r); err != nil {
		return err
	}
	return Scrub(r.Upper)
}

// archives is where mmdebstrap leaves the files of what it unpacked.
const archives = "/var/cache/apt/archives/"

// units are enabled beside those that their packages enable.
var units = []string{"systemd-networkd.service", "systemd-resolved.service"}

// sshd reads the layer's keys alone. Homes may lie on a state disk, where a key
// outlives its removal from the site; /etc never does.
const sshd = `# Keys come with the layer. One in a home is not read: it would stay when the
# site takes it away.
AuthorizedKeysFile ` + paths.KeysDir + `/%u
`

// sshdFile sorts before what a base may bring: of two values sshd takes the first.
const sshdFile = "/etc/ssh/sshd_config.d/00-caisson.conf"

// Configure makes the tree usable as a root that caisson stacks.
func Configure(ctx context.Context, r *root.Root) error {
	files := []struct {
		name, text string
	}{
		{"/etc/machine-id", ""}, // empty: written into each root at boot
		{"/etc/apt/sources.list", "# Packages come with the layer, see caisson build.\n"},
		{sshdFile, sshd},
		{"/etc/dpkg/dpkg.cfg.d/90-caisson", nodeDpkg},
		{"/etc/apt/apt.conf.d/90caisson", nodeApt},
		{"/etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
	}
	for _, f := range files {
		if err := r.WriteFile(f.name, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	if err := setLocale(r); err != nil {
		return err
	}
	if err := r.MkdirAll(paths.KeysDir, 0o755); err != nil {
		return err
	}
	if err := r.Symlink("../run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf"); err != nil {
		return err
	}
	enable := append([]string{"systemctl", "--quiet", "enable"}, units...)
	err := r.Run(ctx, root.Command{Args: enable})
	if exit, ok := errors.AsType[*root.ExitError](err); ok {
		return fmt.Errorf("enable %s: %s", strings.Join(units, ", "), exit.Output)
	}
	return err
}

// setLocale has sessions speak UTF-8, as an installer does, unless the base says what they speak. A
// package leaves a link to nowhere, of which pam_env(8) complains at each login.
func setLocale(r *root.Root) error {
	const name, link = "/etc/locale.conf", "/etc/default/locale"
	for _, said := range []string{name, link} {
		at, err := r.Follow(said)
		if err != nil {
			return err
		}
		if _, err := r.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := r.WriteFile(name, []byte("LANG=C.UTF-8\n"), 0o644); err != nil {
		return err
	}
	return r.Symlink("../locale.conf", link)
}

// leftovers are removed from every tree, as what is one machine's is: they differ each
// time. Patterns are those of filepath.Match.
var leftovers = []string{
	"etc/hostname", "etc/.pwd.lock", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-",
	"etc/apt/sources.list.d/0000*", "etc/ld.so.cache~",
	"usr/sbin/policy-rc.d",
	"var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/cache/apt/archives/lock", "var/cache/apt/archives/partial/*",
	"var/cache/debconf/*-old", "var/cache/ldconfig/aux-cache", "var/cache/man/*", "var/cache/fontconfig/*",
	"var/lib/apt/lists/*", "var/lib/dpkg/*-old", "var/lib/dpkg/lock", "var/lib/dpkg/lock-frontend",
	"var/lib/dpkg/triggers/Lock", "var/lib/dpkg/updates/*",
	"var/log/*.log", "var/log/apt/*", "var/log/wtmp", "var/log/btmp", "var/log/lastlog", "var/log/faillog", "var/log/journal/*",
	"tmp/*", "tmp/.*", "var/tmp/*", "run/*", "run/.*", "dev/*", "root/.bash_history",
}

// idle lists the units that packages enable and that have nothing to do on a read-only /usr. A site
// may enable them.
var idle = []string{
	"etc/systemd/system/timers.target.wants/apt-daily.timer", "etc/systemd/system/timers.target.wants/apt-daily-upgrade.timer",
	"etc/systemd/system/timers.target.wants/dpkg-db-backup.timer", "etc/systemd/system/timers.target.wants/man-db.timer",
	"etc/systemd/system/multi-user.target.wants/unattended-upgrades.service",
}

// What dpkg and apt say on a node, in place of a package that is half there.
const (
	hint     = "packages of this system come with its layer: conf.apt.packages of the site, then caisson build"
	nodeDpkg = "pre-invoke=test -w /usr || { echo '" + hint + "' >&2; exit 1; }\n"
	nodeApt  = "APT::Update::Pre-Invoke { \"" + sayIt + "\"; };\nAptCli::Hooks::Install:: \"" + unlocated + "\";\n"
	sayIt    = "test -w /usr || echo '" + hint + "' >&2"
	// unlocated answers apt's JSON hook, protocol 0.1, and speaks where a package has no candidate.
	unlocated = `s=$APT_HOOK_SOCKET; read h <&$s; read h <&$s; ` +
		`printf '{\042jsonrpc\042:\0422.0\042,\042id\042:0,\042result\042:{\042version\042:\0420.1\042}}\n\n' >&$s; ` +
		`while read h <&$s; do case $h in *hooks.install.fail*) ` + sayIt + `;; *hooks.bye*) exit 0;; esac; done`
)

// Scrub removes the leftovers from a tree (or from an upper one: what it removes
// is never in the tree below).
func Scrub(tree string) error {
	top, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer top.Close() // a descriptor of a directory
	if err := removeGlob(top, slices.Concat(leftovers, idle, perhost.Patterns(top.FS()))); err != nil {
		return err
	}
	for _, row := range perhost.Table {
		if row.Text == nil {
			continue
		}
		for _, name := range row.Patterns {
			if err := cut(top, name, row.Text); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("leave out %s: %w", row.What, err)
			}
		}
	}
	return nil
}

// removeGlob removes from a tree what matches the patterns, those of [path.Match].
func removeGlob(top *os.Root, patterns []string) error {
	for _, pattern := range patterns {
		found, err := []string{pattern}, error(nil)
		if strings.ContainsAny(pattern, `*?[`) { // Glob would follow a link that is the last part
			found, err = fs.Glob(top.FS(), pattern)
		} else if _, missing := top.Lstat(pattern); missing != nil {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := top.RemoveAll(name); err != nil {
				return fmt.Errorf("remove %s: %w", filepath.Join("/", name), err)
			}
		}
	}
	return nil
}

// cut takes text out of a file, and the file away where that was all.
func cut(top *os.Root, name string, text *regexp.Regexp) error {
	was, err := top.ReadFile(name)
	if err != nil {
		return err
	}
	switch left := text.ReplaceAll(was, nil); {
	case len(left) == len(was):
		return nil
	case len(left) == 0:
		return top.Remove(name)
	default:
		return top.WriteFile(name, left, 0) // it has its mode
	}
}

// Bake writes into a layer what makes on a node what [Scrub] left out.
func Bake(r *root.Root) error {
	for _, f := range perhost.Bake(func(name string) bool { _, err := r.Lstat(name); return err == nil }) {
		if err := r.WriteFile(f.Path, []byte(f.Text), f.Mode); err != nil {
			return err
		}
	}
	return nil
}

// recommended lists the packages that an installed Debian or Ubuntu has beside [Include] and its
// dependencies: by a Recommends of one of these, or by priority required or important. Packages
// count on it without a word. What a suite lacks, as bookworm systemd-cryptsetup, is not asked for;
// the time service is chosen with the site's packages.
var recommended = []struct {
	name string
	in   bool
	why  string
}{
	{"dbus-user-session", true, "services of a user, as rootless podman has them"},
	{"e2fsprogs", true, "checks of ext4 before it is mounted; trixie has them apart"},
	{"libnss-myhostname", true, "a host's own name resolves, also while it has no address"},
	{"libnss-systemd", true, "names of users that systemd makes while a service runs"},
	{"linux-sysctl-defaults", true, "kernel parameters that were systemd's own before trixie"},
	{"login", true, "logins at a console; nologin, the shell of accounts that nobody logs in to"},
	{"netbase", true, "names of services and protocols"},
	{"procps", true, "ps and sysctl; in bookworm the protection of links"},
	{"systemd-cryptsetup", true, "encrypted disks, which were in systemd itself before trixie"},
	{"systemd-hwe-hwdb", true, "names of newer hardware, apart in Ubuntu"},
	{"tzdata", true, "time zones: a program counts in UTC without a word where there are none"},

	{"adduser", false, "packages that call it depend on it"},
	{"apt-utils", false, "questions before packages are unpacked: nobody answers"},
	{"bash-completion", false, "for people who type"},
	{"console-setup", false, "a console of a server has its firmware's font"},
	{"cpio", false, "the agent reads archives itself"},
	{"cron", false, "systemd has timers"},
	{"cron-daemon-common", false, "with cron"},
	{"debconf-i18n", false, "answers come with the site"},
	{"debian-archive-keyring", false, "packages come with the layer"},
	{"dhcpcd-base", false, "systemd-networkd asks for addresses"},
	{"dmidecode", false, "the kernel has it below /sys/class/dmi"},
	{"dmsetup", false, "what needs it depends on it"},
	{"eject", false, "servers have no tray"},
	{"fdisk", false, "disks are mounted, not divided"},
	{"gpgv", false, "packages come with the layer"},
	{"ifupdown", false, "systemd-networkd makes interfaces"},
	{"init", false, "systemd-sysv is it"},
	{"iputils-ping", false, "for people who type"},
	{"isc-dhcp-client", false, "systemd-networkd asks for addresses"},
	{"isc-dhcp-common", false, "with isc-dhcp-client"},
	{"iso-codes", false, "names of countries and languages"},
	{"krb5-locales", false, "messages in other languages"},
	{"less", false, "for people who type"},
	{"libatm1", false, "networks of another age"},
	{"libatm1t64", false, "networks of another age"},
	{"libidn2-0", false, "host names in other alphabets"},
	{"libnss-resolve", false, "/etc/resolv.conf leads to systemd-resolved, for every program"},
	{"libpam-cap", false, "capabilities of a session, by a file that the site would have"},
	{"locales", false, "C.UTF-8 is in libc-bin"},
	{"logrotate", false, "the journal rotates itself; packages with logs of their own recommend it"},
	{"lsb-release", false, "/etc/os-release has it"},
	{"nano", false, "for people who type"},
	{"ncurses-term", false, "descriptions of rare terminals, 4 MB"},
	{"netcat-openbsd", false, "for people who type"},
	{"netplan.io", false, "systemd-networkd makes interfaces"},
	{"networkd-dispatcher", false, "scripts beside the site's"},
	{"nftables", false, "rules are the site's: who has them asks for it"},
	{"python3", false, "what is written in it depends on it"},
	{"readline-common", false, "for people who type"},
	{"rsyslog", false, "the journal is the log"},
	{"sensible-utils", false, "for people who type"},
	{"shared-mime-info", false, "types of files, for desktops"},
	{"ssh-import-id", false, "keys come with the site"},
	{"systemd-timesyncd", false, "unless the site has another time service: chosen with its packages"},
	{"tasksel-data", false, "there is no installer"},
	{"ubuntu-minimal", false, "each that it names has its row here"},
	{"ubuntu-pro-client", false, "subscriptions"},
	{"udev", false, "in Include"},
	{"vim-common", false, "for people who type"},
	{"vim-tiny", false, "for people who type"},
	{"whiptail", false, "answers come with the site"},
	{"xauth", false, "a server shows no windows"},
	{"xdg-user-dirs", false, "folders of a desktop"},
}
