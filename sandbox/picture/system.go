// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// look notes what is mounted where, with the files of what is written there. places are
// directories in the place of writable file systems.
func (p Picture) look(d devices, places []string) {
	table, _ := text("/proc/self/mountinfo")
	all := parseMounts(table)
	p.mounts(all, d)
	walk, parts, below := written(all, isDirectory)
	if places != nil {
		walk, parts, below = map[string]string{}, nil, nil
	}
	for _, place := range places {
		walk[place] = place
	}
	p.all(walk, parts, below)
}

func isDirectory(name string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(name, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}

// all notes the files of each place, from where they are listed to where they appear. What is
// mounted over a directory comes after it, and is what appears there.
func (p Picture) all(walk map[string]string, parts []string, below map[string][]string) {
	above := func(a, b string) int { return strings.Compare(walk[a], walk[b]) }
	for _, from := range slices.SortedFunc(maps.Keys(walk), above) {
		p.written(from, walk[from], parts, below[from])
	}
}

// written notes the files below a directory, on its file system, by the names that they have
// below another one. An overlay keeps its copy of what was changed back: one that is as in the
// directories below it is not noted.
func (p Picture) written(from, at string, parts, below []string) {
	var top syscall.Stat_t
	if syscall.Lstat(from, &top) != nil {
		return
	}
	_ = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error { // likewise: what cannot be read is not in it
		if err != nil {
			return nil // it is gone
		}
		var st syscall.Stat_t
		switch {
		case syscall.Lstat(name, &st) != nil:
			return nil // as above
		case name != from && (slices.Contains(parts, name) || d.IsDir() && st.Dev != top.Dev):
			return fs.SkipDir
		}
		value, under := describe(name, &st), strings.TrimPrefix(name, from)
		for _, dir := range below {
			var same syscall.Stat_t
			if lower := filepath.Join(dir, under); syscall.Lstat(lower, &same) == nil {
				if describe(lower, &same) == value {
					return nil
				}
				break
			}
		}
		p["file "+filepath.Join(at, under)] = value
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
		value += fmt.Sprintf(" device %#x", st.Rdev) // 0 is the sign that an overlay hides a file
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
