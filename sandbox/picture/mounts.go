// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// onDisk are the types of file systems on which somebody writes what stays.
var onDisk = []string{"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "vfat", "xfs"}

// layersOf are the options of an overlay that name its parts: by where they were when it was
// stacked, which differs from boot to boot.
var layersOf = regexp.MustCompile(`,?(lowerdir|upperdir|workdir)\+?=[^,]*`)

var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`)

// mount is a line of proc_pid_mountinfo(5).
type mount struct{ at, root, flags, kind, source, options string }

// parseMounts reads the lines of mountinfo.
func parseMounts(table string) (all []mount) {
	for line := range strings.Lines(table) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 6 && len(r) >= 3 {
			all = append(all, mount{escaped.Replace(l[4]), l[3], l[5], r[0], r[1], r[2]})
		}
	}
	return all
}

// mounts notes what is mounted where, by what it is made of.
func (p Picture) mounts(all []mount, d devices) {
	for _, m := range all {
		name := "mount " + m.at
		for n := 2; p[name] != ""; n++ {
			name = fmt.Sprintf("mount %s (%d)", m.at, n)
		}
		p[name] = strings.TrimSpace(strings.Join([]string{m.kind, d.source(m.source), m.root, m.flags, m.says()}, " "))
	}
}

// says returns the options of a mount without those that are of this boot alone: parts of an
// overlay, and the pipe and the process that answer for an automount.
func (m mount) says() string {
	if m.kind == "autofs" {
		return ""
	}
	return layersOf.ReplaceAllString(m.options, "")
}

// writable reports whether somebody writes there what stays. A part of an overlay is seen at
// another place.
func (m mount) writable() bool {
	writes := slices.Contains(strings.Split(m.flags+","+m.options, ","), "rw")
	return writes && slices.Contains(onDisk, m.kind) && (m.kind != "overlay" || m.root == "/")
}

// part returns the directory that an option of an overlay names.
func (m mount) part(option string) string {
	for one := range strings.SplitSeq(m.options, ",") {
		if name, value, _ := strings.Cut(one, "="); name == option && m.kind == "overlay" {
			return value
		}
	}
	return ""
}

// written returns from where files are listed, and where each of these directories appears. Of
// an overlay what was written is in its upper directory; parts are directories of overlays,
// which are not listed twice, and below has those under each upper one, the highest first. is
// reports whether something is a directory.
func written(all []mount, is func(dir string) bool) (walk map[string]string, parts []string, below map[string][]string) {
	walk, below = map[string]string{}, map[string][]string{}
	for _, m := range all {
		if !m.writable() {
			continue
		}
		upper, work := reach(m.part("upperdir"), m.part("workdir"), all, is)
		if upper == "" {
			walk[m.at] = m.at
			continue
		}
		walk[upper], below[upper] = m.at, strings.Split(m.part("lowerdir"), ":")
		parts = append(parts, upper, work)
	}
	return walk, parts, below
}

// reach returns where two directories of an overlay are now. A soft-reboot ends the mount by which
// the next root was stacked, and that root has the same file system elsewhere: there both are
// below its top by the same names.
func reach(upper, work string, all []mount, is func(dir string) bool) (string, string) {
	if upper == "" || is(upper) {
		return upper, work
	}
	for _, m := range all {
		there, beside := filepath.Join(m.at, filepath.Base(upper)), filepath.Join(m.at, filepath.Base(work))
		if m.kind != "overlay" && m.root == "/" && m.writable() && is(there) && is(beside) {
			return there, beside
		}
	}
	return upper, work
}
