// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"regexp"
	"strings"
)

// reader is a program that reads a directory, and passes over some of its names.
type reader struct {
	dir   string                 // a pattern of path.Match
	reads func(name string) bool // by its name
	how   string                 // what it reads
	runs  bool                   // it runs them, and needs them to be executable
}

var (
	conf     = ending(".conf")
	runParts = regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString
	taboo    = regexp.MustCompile(`~$|,v$|\.(bak|cfsaved|disabled|dpkg-(bak|del|dist|new|old|tmp)|ignored|old|orig|rej|rhn-cfg-tmp-.*|rpm(new|orig|save)|swp|ucf-(dist|new|old)|v)$`)
)

const byRunParts = "run-parts(8) runs names of letters, digits, _ and - only"

// readers are those of Debian whose rule for names is known.
var readers = []reader{
	{"/etc/sudoers.d", func(name string) bool { return !strings.Contains(name, ".") && !strings.HasSuffix(name, "~") }, "sudoers(5) reads names without a dot and without ~ at the end", false},
	{"/etc/cron.d", runParts, "cron(8) reads names of letters, digits, _ and - only", false},
	{"/etc/cron.hourly", runParts, byRunParts, true},
	{"/etc/cron.daily", runParts, byRunParts, true},
	{"/etc/cron.weekly", runParts, byRunParts, true},
	{"/etc/cron.monthly", runParts, byRunParts, true},
	{"/etc/update-motd.d", runParts, byRunParts, true},
	{"/etc/network/if-*.d", runParts, byRunParts, true},
	{"/etc/modprobe.d", conf, "modprobe.d(5) reads names that end in .conf", false},
	{"/etc/modules-load.d", conf, "modules-load.d(5) reads names that end in .conf", false},
	{"/etc/sysctl.d", conf, "sysctl.d(5) reads names that end in .conf", false},
	{"/etc/tmpfiles.d", conf, "tmpfiles.d(5) reads names that end in .conf", false},
	{"/etc/sysusers.d", conf, "sysusers.d(5) reads names that end in .conf", false},
	{"/etc/systemd/*.conf.d", conf, "systemd reads names that end in .conf there", false},
	{"/etc/security/limits.d", conf, "pam_limits(8) reads names that end in .conf", false},
	{"/etc/ssh/sshd_config.d", conf, "sshd_config of Debian includes names that end in .conf", false},
	{"/etc/ld.so.conf.d", conf, "ldconfig(8) reads names that end in .conf", false},
	{"/etc/rsyslog.d", conf, "rsyslog.conf of Debian includes names that end in .conf", false},
	{"/etc/profile.d", ending(".sh"), "/etc/profile of Debian reads names that end in .sh", false},
	{"/etc/udev/rules.d", ending(".rules"), "udev(7) reads names that end in .rules", false},
	{"/etc/systemd/network", ending(".network", ".netdev", ".link"), "systemd reads names that end in .network, .netdev or .link there", false},
	{"/etc/apt/sources.list.d", ending(".list", ".sources"), "sources.list(5) reads names that end in .list or .sources", false},
	{"/etc/logrotate.d", func(name string) bool { return !taboo.MatchString(name) }, "logrotate(8) passes over endings of copies, such as .bak, .old and ~", false},
}

func ending(of ...string) func(string) bool {
	return func(name string) bool {
		for _, e := range of {
			if strings.HasSuffix(name, e) {
				return true
			}
		}
		return false
	}
}

// PassedOver says why the program that reads the directory of a file passes over it, ""
// where it reads it, or where its rule is not known.
func PassedOver(file string, mode Mode) string {
	dir, name := path.Split(file)
	for _, r := range readers {
		switch match, err := path.Match(r.dir, path.Clean(dir)); {
		case err != nil || !match: // the patterns are valid
		case !r.reads(name):
			return r.how
		case r.runs && mode.Apply(0o644, false)&0o100 == 0:
			return "run-parts(8) runs only what may be executed"
		}
	}
	return ""
}
