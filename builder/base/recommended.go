// SPDX-License-Identifier: Apache-2.0

package base

// recommended lists the packages that an installed Debian has beside [Include] and its
// dependencies: by a Recommends of one of these, or by priority important. Packages count on it
// without a word. What a suite lacks, as bookworm systemd-cryptsetup, is not asked for; the time
// service is chosen with the site's packages.
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
	{"netbase", true, "names of services and protocols"},
	{"procps", true, "ps and sysctl; in bookworm the protection of links"},
	{"systemd-cryptsetup", true, "encrypted disks, which were in systemd itself before trixie"},

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
	{"fdisk", false, "disks are mounted, not divided"},
	{"gpgv", false, "packages come with the layer"},
	{"ifupdown", false, "systemd-networkd makes interfaces"},
	{"init", false, "systemd-sysv is it"},
	{"iputils-ping", false, "for people who type"},
	{"isc-dhcp-client", false, "systemd-networkd asks for addresses"},
	{"isc-dhcp-common", false, "with isc-dhcp-client"},
	{"less", false, "for people who type"},
	{"libatm1", false, "networks of another age"},
	{"libatm1t64", false, "networks of another age"},
	{"libidn2-0", false, "host names in other alphabets"},
	{"libnss-resolve", false, "/etc/resolv.conf leads to systemd-resolved, for every program"},
	{"logrotate", false, "the journal rotates itself; packages with logs of their own recommend it"},
	{"nano", false, "for people who type"},
	{"ncurses-term", false, "descriptions of rare terminals, 4 MB"},
	{"nftables", false, "rules are the site's: who has them asks for it"},
	{"readline-common", false, "for people who type"},
	{"sensible-utils", false, "for people who type"},
	{"systemd-timesyncd", false, "unless the site has another time service: chosen with its packages"},
	{"tasksel-data", false, "there is no installer"},
	{"udev", false, "in Include"},
	{"vim-common", false, "for people who type"},
	{"vim-tiny", false, "for people who type"},
	{"whiptail", false, "answers come with the site"},
	{"xauth", false, "a server shows no windows"},
}
