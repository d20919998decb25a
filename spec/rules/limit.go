// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// limitItems are those of limits.conf(5).
var limitItems = []string{"core", "data", "fsize", "memlock", "nofile", "rss", "stack", "cpu", "nproc", "as", "maxlogins", "maxsyslogins",
	"nonewprivs", "priority", "locks", "sigpending", "msgqueue", "nice", "rtprio", "chroot"}

// LimitFile returns the file that a node writes for a limit.
func LimitFile(id string) string { return "/etc/security/limits.d/60-caisson-" + id + ".conf" }

// Limit checks a line of limits.conf(5), which pam_limits(8) splits at blanks and
// cuts at "#".
func Limit(l spec.Limit) error {
	var f fields
	f.add("id", ID(l.ID))
	f.add("domain", refuse(!word(l.Domain), "text", "one word without blanks, quotes and #", "%.80q is not a domain", l.Domain))
	f.add("type", oneOf(l.Type, "one of hard, soft, -", []string{"hard", "soft", "-"}))
	f.add("item", oneOf(l.Item, "an item of limits.conf(5)", limitItems))
	f.add("value", limitValue(l.Item, l.Value))
	return f.err()
}

func limitValue(item, value string) error {
	if item == "chroot" {
		return refuse(!word(value) || !path.IsAbs(value), "path", "", "%.80q is not an absolute path", value)
	}
	if value == "unlimited" || value == "infinity" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return refuse(err != nil || strings.HasPrefix(value, "+") || n < -1 && item != "nice" && item != "priority", "type",
		"a number, unlimited, infinity or -1", "%.80q is not a limit", value)
}

// word reports whether s is one word of a line.
func word(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '"' || r == '#' ||
			r == 0x7f || r == 0x85 || r == 0xa0
	})
}

// OpenFiles is fs.nr_open of a kernel that nobody has told otherwise, see proc_sys_fs(5).
const OpenFiles = "1048576"

// MoreOpenFiles reports whether a limit asks for more open files than a value of fs.nr_open lets
// the kernel grant: setrlimit(2) fails then, and PAM ends the session.
func MoreOpenFiles(l spec.Limit, most string) bool {
	want, err := strconv.ParseUint(l.Value, 10, 64)
	has, errHas := strconv.ParseUint(most, 10, 64)
	return l.Item == "nofile" && err == nil && errHas == nil && want > has
}
