// SPDX-License-Identifier: Apache-2.0

package module

import (
	"path"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
)

// directory is one whose reader passes over some of the names in it.
type directory struct {
	dir   string                 // a pattern of path.Match
	reads func(name string) bool // by its name
	how   string                 // what it reads
	runs  bool                   // it runs them, and needs them to be executable
}

var (
	dotConf  = ending(".conf")
	runParts = regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString
	taboo    = regexp.MustCompile(`~$|,v$|\.(bak|cfsaved|disabled|dpkg-(bak|del|dist|new|old|tmp)|ignored|old|orig|rej|rhn-cfg-tmp-.*|rpm(new|orig|save)|swp|ucf-(dist|new|old)|v)$`)
)

const byRunParts = "run-parts(8) runs names of letters, digits, _ and - only"

// directories are those of Debian whose reader has a rule for names.
var directories = []directory{
	{"/etc/sudoers.d", func(name string) bool { return !strings.Contains(name, ".") && !strings.HasSuffix(name, "~") }, "sudoers(5) reads names without a dot and without ~ at the end", false},
	{"/etc/cron.d", runParts, "cron(8) reads names of letters, digits, _ and - only", false},
	{"/etc/cron.hourly", runParts, byRunParts, true},
	{"/etc/cron.daily", runParts, byRunParts, true},
	{"/etc/cron.weekly", runParts, byRunParts, true},
	{"/etc/cron.monthly", runParts, byRunParts, true},
	{"/etc/update-motd.d", runParts, byRunParts, true},
	{"/etc/network/if-*.d", runParts, byRunParts, true},
	{"/etc/modprobe.d", dotConf, "modprobe.d(5) reads names that end in .conf", false},
	{"/etc/modules-load.d", dotConf, "modules-load.d(5) reads names that end in .conf", false},
	{"/etc/sysctl.d", dotConf, "sysctl.d(5) reads names that end in .conf", false},
	{"/etc/tmpfiles.d", dotConf, "tmpfiles.d(5) reads names that end in .conf", false},
	{"/etc/sysusers.d", dotConf, "sysusers.d(5) reads names that end in .conf", false},
	{"/etc/systemd/*.conf.d", dotConf, "systemd reads names that end in .conf there", false},
	{"/etc/security/limits.d", dotConf, "pam_limits(8) reads names that end in .conf", false},
	{"/etc/ssh/sshd_config.d", dotConf, "sshd_config of Debian includes names that end in .conf", false},
	{"/etc/ld.so.conf.d", dotConf, "ldconfig(8) reads names that end in .conf", false},
	{"/etc/rsyslog.d", dotConf, "rsyslog.conf of Debian includes names that end in .conf", false},
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

// passedOver says why the program that reads the directory of a file passes over it, ""
// where it reads it, or where its rule is not known.
func passedOver(file string, mode rules.Mode) string {
	dir, name := path.Split(file)
	for _, r := range directories {
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
