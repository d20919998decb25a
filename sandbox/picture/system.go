// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// look notes what is mounted where, with the files that are seen on each writable file system. places
// are directories in their place.
//
// Of a root that is stacked these are all of its files: an overlay keeps its copy of what was changed
// back, and behind a soft-reboot the directories below it cannot be reached.
func (p Picture) look(d devices, places []string) {
	table, _ := text("/proc/self/mountinfo")
	all := parseMounts(table)
	p.mounts(all, d)
	mounted := map[string]bool{}
	for _, m := range all {
		mounted[m.at] = true
	}
	if places == nil {
		places = written(all)
	}
	for _, place := range places {
		p.below(place, mounted)
	}
}

// below notes the files below a directory, without those of other mounts and what changes by itself.
func (p Picture) below(top string, mounted map[string]bool) {
	_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error { // what cannot be read is not in it
		var st syscall.Stat_t
		if err != nil || syscall.Lstat(name, &st) != nil {
			return nil // it is gone
		}
		other := name != top && mounted[name]
		if !other && !Alone("file "+name) {
			p["file "+name] = describe(name, &st)
		}
		if d.IsDir() && (other || Alone("file "+filepath.Join(name, "any"))) {
			return fs.SkipDir
		}
		return nil
	})
}

// describe returns mode, owner and content of a file.
func describe(name string, st *syscall.Stat_t) string {
	value := fmt.Sprintf("%06o %d:%d", st.Mode, st.Uid, st.Gid)
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		value += " " + sum(name, st.Size)
	case syscall.S_IFLNK:
		target, _ := os.Readlink(name) // one that is gone has none
		value += " " + target
	case syscall.S_IFCHR, syscall.S_IFBLK:
		value += fmt.Sprintf(" device %#x", st.Rdev)
	}
	return value
}

// maxSum is the size up to which files are read.
const maxSum = 64 << 20

func sum(name string, size int64) string {
	f, err := os.Open(name)
	if err != nil || size > maxSum {
		return fmt.Sprintf("%d bytes", size)
	}
	defer f.Close() // only read
	h := sha256.New()
	_, _ = io.Copy(h, io.LimitReader(f, maxSum)) // the digest of what can be read
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// accounts are the lines of the files of accounts. Of one with a password a digest is enough.
func (p Picture) accounts(dir string) {
	for _, file := range []string{"passwd", "group", "shadow", "gshadow", "subuid", "subgid"} {
		lines, _ := text(filepath.Join(dir, file))
		for line := range strings.Lines(lines) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.HasSuffix(file, "shadow") {
				rest = fmt.Sprintf("%x", sha256.Sum256([]byte(rest)))[:24]
			}
			p["account "+file+" "+name] = rest
		}
	}
}

// units are those that systemd has loaded, and those that it finds. A machine without systemd
// has none.
func (p Picture) units() error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil //nolint:nilerr // see sd_booted(3)
	}
	for kind, verb := range map[string]string{"unit": "list-units", "unit-file": "list-unit-files"} {
		cmd := exec.Command("systemctl", verb, "--all", "--full", "--plain", "--no-legend", "--no-pager")
		cmd.Env = append(os.Environ(), "SYSTEMD_BUS_TIMEOUT=300") // seconds: an emulated processor takes long for all of them
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("systemctl %s: %w", verb, err)
		}
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(strings.TrimLeft(line, "●* "))
			if len(words) >= 2 {
				p[kind+" "+words[0]] = strings.Join(words[1:min(len(words), 4)], " ")
			}
		}
	}
	return nil
}
