// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unshown are values that a file system has when mountinfo does not show them.
var unshown = map[string]map[string]string{
	"tmpfs": {"mode": "1777", "uid": "0", "gid": "0"},
	"ramfs": {"mode": "755"},
}

// unasked are the values that a remount must name to get them back, because the
// kernel keeps what it does not hear of.
func unasked(fstype string) map[string]string {
	if fstype != "tmpfs" {
		return nil
	}
	half := memory() / pageSize / 2
	return map[string]string{"size": strconv.FormatUint(half*pageSize, 10), "nr_inodes": strconv.FormatUint(half, 10)}
}

// remountable completes data for a remount.
func remountable(fstype string, data []string) []string {
	data = slices.Clone(data)
	for key, value := range unasked(fstype) {
		if !hasKey(data, key) {
			data = append(data, key+"="+value)
		}
	}
	return data
}

func hasKey(words []string, key string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		k, _, _ := strings.Cut(word, "=")
		return k == key
	})
}

// shows reports whether a file system's option is visibly as asked. What the
// kernel does not show counts as such: it took the option when it mounted.
func shows(m mounted, word string) bool {
	if slices.Contains(m.super, word) {
		return true
	}
	key, want, _ := strings.Cut(word, "=")
	for _, have := range m.super {
		if k, now, ok := strings.Cut(have, "="); ok && k == key {
			return sameValue(key, want, now) || inOtherWords[key] != nil && inOtherWords[key](want, now)
		}
	}
	if now, ok := unshown[m.fstype][key]; ok {
		return sameValue(key, want, now)
	}
	return true
}

// inOtherWords are options that a file system shows more exactly than they are asked for: the
// version and the sizes that were agreed on with a server, the level of a compression, a
// subvolume by its path.
var inOtherWords = map[string]func(want, now string) bool{
	"vers":     refines("."),
	"compress": refines(":"), "compress-force": refines(":"),
	"subvol": func(want, now string) bool { return strings.TrimLeft(want, "/") == strings.TrimLeft(now, "/") },
	"rsize":  atMost, "wsize": atMost,
}

func refines(by string) func(want, now string) bool {
	return func(want, now string) bool { return strings.HasPrefix(now, want+by) }
}

func atMost(want, now string) bool {
	a, okA := value("rsize", want)
	b, okB := value("rsize", now)
	return okA && okB && b <= a
}

func sameValue(key, want, now string) bool {
	a, okA := value(key, want)
	b, okB := value(key, now)
	if okA && okB {
		return a == b
	}
	return want == now
}

// value reads the numbers that the kernel writes in another form than people:
// octal modes, sizes with a unit, shares of the memory.
func value(key, text string) (uint64, bool) {
	if strings.HasSuffix(key, "mode") || key == "umask" || key == "fmask" || key == "dmask" {
		n, err := strconv.ParseUint(text, 8, 32)
		return n, err == nil
	}
	unit := uint64(1)
	switch {
	case text == "":
		return 0, false
	case strings.HasSuffix(text, "%"):
		percent, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 16)
		if err != nil {
			return 0, false
		}
		return pages(memory() / pageSize * pageSize * percent / 100), true
	default:
		if n := strings.IndexByte("kmgtpe", text[len(text)-1]|0x20); n >= 0 {
			unit = 1 << (10 * (n + 1))
			text = text[:len(text)-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false
	}
	if key == "size" {
		return pages(n * unit), true
	}
	return n * unit, true
}

const pageSize = 4096

// pages rounds up to whole pages, as tmpfs does.
func pages(bytes uint64) uint64 { return (bytes + pageSize - 1) / pageSize * pageSize }

func memory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

// numbers puts numbers in the places of users and groups, as mount(8) does: the kernel knows no
// names. One that is not there may come with this generation's accounts.
func (o *options) numbers() error {
	for _, words := range [][]string{o.words, o.data} {
		for n, word := range words {
			key, name, _ := strings.Cut(word, "=")
			if _, err := strconv.ParseUint(name, 10, 32); err == nil || name == "" {
				continue
			}
			number, err := "", error(nil)
			switch key {
			case "uid":
				var u *user.User
				if u, err = user.Lookup(name); err == nil {
					number = u.Uid
				}
			case "gid":
				var g *user.Group
				if g, err = user.LookupGroup(name); err == nil {
					number = g.Gid
				}
			default:
				continue
			}
			if err != nil {
				return fmt.Errorf("%s %q is %w", map[string]string{"uid": "user", "gid": "group"}[key], name, errDeferred)
			}
			words[n] = key + "=" + number
		}
	}
	return nil
}
