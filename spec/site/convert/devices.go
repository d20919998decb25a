// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"regexp"
	"strings"
)

// written is a line of tmpfiles.d(5) that writes a value below /sys or /proc/sys, with
// nothing that it stands for.
var written = regexp.MustCompile(`^w\+?\s+(/(?:sys|proc/sys)/[^\s%*?["']+)(?:\s+-){4}\s+([^%"'\\]+)$`)

// readTmpfiles reads tmpfiles.d(5): values of the kernel as what they are, a file that says
// anything else as that file.
func readTmpfiles(r *reading) {
	values := map[int][]string{}
	all := true
	r.lines("#", func(n int, line string) {
		values[n] = written.FindStringSubmatch(line)
		all = all && values[n] != nil
	})
	if !all {
		r.asFile("tmpfiles.d", ".conf")
		return
	}
	r.lines("#", func(n int, line string) {
		v := values[n]
		if key, isSysctl := strings.CutPrefix(v[1], "/proc/sys/"); isSysctl {
			r.sysctl(n, line, key, v[2], false)
		} else {
			r.sysfs(n, line, v[1], v[2])
		}
	})
}

// readUdev takes a file of rules, see udev(7), as it is.
func readUdev(r *reading) { r.asFile("udev/rules.d", ".rules") }

// asFile takes the whole file as one below /etc. What a package brought comes with it.
func (r *reading) asFile(directory, end string) {
	if strings.Contains(r.name, "lib/"+directory+"/") {
		r.whole("a package brings it")
		return
	}
	name := path.Base(r.name)
	if !strings.HasSuffix(name, end) {
		name += end
	}
	name = path.Join("/etc", directory, name)
	var first *parsed
	r.lines("#", func(n int, line string) {
		if first == nil {
			first = r.take(n, line, "files", name, []string{name}, map[string]any{"content": r.data})
			return
		}
		r.item(n, line).of = first
	})
}

// readSysusers accounts for sysusers.d(5).
func readSysusers(r *reading) {
	r.lines("#", func(n int, line string) {
		r.miss(n, line, "accounts of the system come with packages, which have their numbers in the ledger: build a package that brings the file")
	})
}
