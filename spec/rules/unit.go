// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caisson-os/caisson/spec"
)

// ManagerConf stands among units for systemd itself: the drop-in that sets the limits of
// services which have none of their own, see systemd-system.conf(5).
const ManagerConf = "system.conf"

// UnitFile returns the file that a node writes for a unit.
func UnitFile(name string) string { return "/etc/systemd/system/" + name }

// UnitDropIn returns the file that a node writes for a drop-in of a unit.
func UnitDropIn(unit, name string) string {
	if unit == ManagerConf {
		return "/etc/systemd/system.conf.d/" + name + ".conf"
	}
	return "/etc/systemd/system/" + unit + ".d/" + name + ".conf"
}

// LimitsDropIn is the drop-in that holds a unit's limits.
const LimitsDropIn = "60-caisson-limits"

// unitLimits are the limits of systemd.exec(5), as limits.conf(5) calls them.
var unitLimits = []string{"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile",
	"nproc", "rss", "rtprio", "rttime", "sigpending", "stack"}

// UnitLimit checks a limit of a unit and returns its line in the drop-in.
func UnitLimit(unit, item, value string) (string, error) {
	if err := oneOf(item, "a limit of systemd.exec(5)", unitLimits); err != nil {
		return "", err
	}
	soft, hard, both := strings.Cut(value, ":")
	for _, one := range []string{soft, hard} {
		number := strings.TrimRight(one, "KMGTPE")
		if (both || one == soft) && one != "infinity" && !spelled(number, digits, digits) || len(one)-len(number) > 1 && one != "infinity" {
			return "", invalid("limit", "a number, with K, M, G or T, or infinity; as in 1024:4096 for soft and hard", "%.80q is not a limit", value)
		}
	}
	line := "Limit" + strings.ToUpper(item) + "=" + value
	if unit == ManagerConf {
		line = "Default" + line
	}
	return line, nil
}

// UnitSettings checks the settings of a unit.
func UnitSettings(u spec.Unit) error {
	var f fields
	f.add("name", unitName(u))
	f.add("content", unitText(u.Content, true))
	f.add("content", unitInstall(u.Name, u.Content))
	for _, d := range u.DropIns {
		f.add("dropIns", ID(d.Name))
		if d.Name != LimitsDropIn {
			f.add("dropIns", Reserved(UnitDropIn(u.Name, d.Name)))
		}
		f.add("dropIns", unitText(d.Content, false))
		f.add("dropIns", unitInstall(u.Name, d.Content))
	}
	f.add("state", optional(u.State, []string{spec.UnitEnabled, spec.UnitDisabled, spec.UnitMasked}))
	f.add("run", optional(u.Run, []string{spec.RunStarted, spec.RunStopped}))
	if u.Name == ManagerConf && (u.Content != "" || u.State != "" || u.Run != "" || u.Restart || len(u.DropIns) != 1 ||
		u.DropIns[0].Name != LimitsDropIn) {
		f.add("name", invalid("unit", "write limits alone", "%s takes limits and nothing else", u.Name))
	}
	switch masked := u.State == spec.UnitMasked; {
	case masked && (u.Content != "" || len(u.DropIns) > 0):
		f.add("state", invalid("contradiction", "leave the file out", "a masked unit has no file of its own"))
	case masked && u.Run == spec.RunStarted:
		f.add("run", invalid("contradiction", "", "a masked unit cannot be started"))
	}
	return f.err()
}

func unitName(u spec.Unit) error {
	if u.Name == ManagerConf {
		return nil
	}
	if err := Unit(u.Name); err != nil {
		return err
	}
	switch {
	case strings.HasSuffix(u.Name, ".device"), strings.HasSuffix(u.Name, ".scope"):
		return invalid("unit", "", "%s is made by systemd itself", u.Name)
	case strings.Contains(u.Name, "@.") && (u.Run != "" || u.State != ""):
		return invalid("unit", "name an instance, as in getty@tty1.service", "%s is a template", u.Name)
	}
	return foreignUnit(u.Name)
}

// foreignUnit refuses the name of a unit of caisson's own.
func foreignUnit(name string) error {
	return refuse(strings.HasPrefix(name, "caisson-"), "unit", "", "%s is caisson's own", name)
}

// UnitSpecifiers expands what systemctl(1) expands in [Install], see systemd.unit(5), as far as
// the name of a unit says it and the user, who is root. What a machine or a release is called is
// not known where a node's links are made.
func UnitSpecifiers(unit, text string) (string, error) {
	name := unit[:max(strings.LastIndexByte(unit, '.'), 0)]
	prefix, instance, _ := strings.Cut(name, "@")
	values := map[byte]string{'%': "%", 'n': unit, 'N': name, 'p': prefix, 'i': instance, 'j': prefix[strings.LastIndexByte(prefix, '-')+1:],
		'u': "root", 'g': "root", 'U': "0", 'G': "0"}
	var out strings.Builder
	for n := 0; n < len(text); n++ {
		if text[n] != '%' || n+1 == len(text) {
			out.WriteByte(text[n])
			continue
		}
		n++
		value, ok := values[text[n]]
		if !ok {
			return "", invalid("unit-file", "%n %N %p %i %j %u %U %g %G and %% can", "%.80q cannot be expanded in [Install]", text)
		}
		out.WriteString(value)
	}
	return out.String(), nil
}

// unitInstall refuses a unit that would be linked into one of caisson's own, or be one.
func unitInstall(unit, text string) error {
	install := UnitSection(text, "Install")
	for _, key := range []string{"Alias", "Also", "WantedBy", "RequiredBy", "UpheldBy"} {
		for _, name := range install[key] {
			name, err := UnitSpecifiers(unit, name)
			if err != nil {
				return err
			}
			if err := foreignUnit(name); err != nil {
				return invalid("unit", "", "%s=: %s is caisson's own", key, name)
			}
		}
	}
	return nil
}

// UnitSection returns the words of each setting in a section of a unit's file.
func UnitSection(text, name string) map[string][]string {
	found := map[string][]string{}
	in := false
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			in = line == "["+name+"]"
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !in || !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if value = strings.TrimSpace(value); value == "" {
			delete(found, key) // an empty one starts over
		}
		found[key] = append(found[key], strings.Fields(value)...)
	}
	return found
}

func unitText(text string, empty bool) error {
	switch {
	case text == "" && empty:
		return nil
	case len(text) > MaxFile:
		return invalid("too-large", "", "a file must be at most %d KiB", MaxFile>>10)
	case strings.Contains(text, "\x00") || !utf8.ValidString(text):
		return invalid("text", "", "the content is not text")
	}
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			return nil
		default:
			return invalid("unit-file", "as in [Service]", "the text does not begin with a section")
		}
	}
	return invalid("unit-file", "as in [Service]", "the text has no section")
}

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
