// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/rules"
)

// A flag option of mount(8): a bit of mount(2), set or taken away.
type flag struct {
	bit   uintptr
	clear bool
}

// atimes are the bits of which a mount has exactly one, or none for atime.
const atimes = unix.MS_RELATIME | unix.MS_NOATIME | unix.MS_STRICTATIME

var flags = map[string]flag{
	"ro":            {bit: unix.MS_RDONLY},
	"rw":            {bit: unix.MS_RDONLY, clear: true},
	"nosuid":        {bit: unix.MS_NOSUID},
	"suid":          {bit: unix.MS_NOSUID, clear: true},
	"nodev":         {bit: unix.MS_NODEV},
	"dev":           {bit: unix.MS_NODEV, clear: true},
	"noexec":        {bit: unix.MS_NOEXEC},
	"exec":          {bit: unix.MS_NOEXEC, clear: true},
	"nosymfollow":   {bit: unix.MS_NOSYMFOLLOW},
	"symfollow":     {bit: unix.MS_NOSYMFOLLOW, clear: true},
	"nodiratime":    {bit: unix.MS_NODIRATIME},
	"diratime":      {bit: unix.MS_NODIRATIME, clear: true},
	"noatime":       {bit: unix.MS_NOATIME},
	"atime":         {bit: unix.MS_NOATIME, clear: true},
	"relatime":      {bit: unix.MS_RELATIME},
	"strictatime":   {bit: unix.MS_STRICTATIME},
	"nostrictatime": {bit: unix.MS_STRICTATIME, clear: true},
	"sync":          {bit: unix.MS_SYNCHRONOUS},
	"async":         {bit: unix.MS_SYNCHRONOUS, clear: true},
	"dirsync":       {bit: unix.MS_DIRSYNC},
	"lazytime":      {bit: unix.MS_LAZYTIME},
	"nolazytime":    {bit: unix.MS_LAZYTIME, clear: true},
}

var propagations = map[string]uintptr{
	"private": unix.MS_PRIVATE, "rprivate": unix.MS_PRIVATE | unix.MS_REC,
	"shared": unix.MS_SHARED, "rshared": unix.MS_SHARED | unix.MS_REC,
	"slave": unix.MS_SLAVE, "rslave": unix.MS_SLAVE | unix.MS_REC,
	"unbindable": unix.MS_UNBINDABLE, "runbindable": unix.MS_UNBINDABLE | unix.MS_REC,
}

// idle are options for fstab(5)'s readers that change nothing here.
var idle = []string{"defaults", "auto", "nofail", "_netdev", "nouser", "silent", "loud"}

// shadow lets a mount cover a directory that is not empty.
const shadow = "x-caisson.shadow"

// redact returns words without the values of secrets.
func redact(words []string) []string {
	return plain.Each(words, rules.RedactOption)
}

// options is an option list, understood.
type options struct {
	words       []string // as authored, without idle ones
	set, clear  uintptr
	propagation uintptr
	bind        uintptr // MS_BIND, with MS_REC for rbind
	data        []string
	shadow      bool
}

func parseOptions(words []string) (options, error) {
	var o options
	for _, word := range words {
		if word == "" {
			continue
		}
		if err := rules.MountOption(word); err != nil {
			return o, err
		}
		switch {
		case word == shadow:
			o.shadow = true
			continue
		case slices.Contains(idle, word), strings.HasPrefix(word, "x-"), strings.HasPrefix(word, "comment="):
			continue
		case word == "bind":
			o.bind |= unix.MS_BIND
		case word == "rbind":
			o.bind |= unix.MS_BIND | unix.MS_REC
		case propagations[word] != 0:
			o.propagation = propagations[word]
		default:
			o.flag(word)
		}
		o.words = append(o.words, word)
	}
	return o, nil
}

func (o *options) flag(word string) {
	f, ok := flags[word]
	switch {
	case !ok:
		o.data = append(o.data, word)
	case f.clear:
		o.set &^= f.bit
		o.clear |= f.bit
	default:
		if f.bit&atimes != 0 {
			o.set &^= atimes
		}
		o.set |= f.bit
		o.clear &^= f.bit
	}
}

// flags are the bits of a mount that starts from base.
func (o options) flags(base uintptr) uintptr {
	if o.set&atimes != 0 {
		base &^= atimes
	}
	return base&^o.clear | o.set
}

// base holds the flags that a new mount has by default.
const base = unix.MS_RELATIME

// flagsOf are the bits that mountinfo shows for a mount.
func flagsOf(m mounted) uintptr {
	var bits uintptr
	for _, name := range []string{"ro", "nosuid", "nodev", "noexec", "nosymfollow", "nodiratime", "noatime", "relatime"} {
		if slices.Contains(m.options, name) {
			bits |= flags[name].bit
		}
	}
	if bits&atimes == 0 {
		bits |= unix.MS_STRICTATIME
	}
	for _, name := range []string{"sync", "dirsync", "lazytime"} {
		if slices.Contains(m.super, name) {
			bits |= flags[name].bit
		}
	}
	if slices.Contains(m.super, "ro") {
		bits |= unix.MS_RDONLY
	}
	return bits
}

// holds reports the first option that m visibly does not have.
func (o options) holds(m mounted) (missing string, ok bool) {
	now := flagsOf(m)
	for _, word := range o.words {
		if f, isFlag := flags[word]; isFlag {
			// A later word may have taken the bit back.
			if f.clear && o.clear&f.bit != 0 && now&f.bit != 0 || !f.clear && o.set&f.bit != 0 && now&f.bit == 0 {
				return word, false
			}
		}
	}
	if !propagates(m, o.propagation&^unix.MS_REC) {
		return "propagation", false
	}
	if o.bind != 0 {
		return "", true // the file system's own options are not the bind's
	}
	for _, word := range o.data {
		if !shows(m, word) {
			return word, false
		}
	}
	return "", true
}

// propagates reports whether m is of a kind; 0 asks for none. The kernel makes a
// slave without a master private.
func propagates(m mounted, kind uintptr) bool {
	now := propagationOf(m)
	return kind == 0 || now == kind || kind == unix.MS_SLAVE && now == unix.MS_PRIVATE
}

func propagationOf(m mounted) uintptr {
	kind := uintptr(unix.MS_PRIVATE)
	for _, word := range m.propagation {
		switch {
		case strings.HasPrefix(word, "shared:"):
			return unix.MS_SHARED
		case strings.HasPrefix(word, "master:"):
			kind = unix.MS_SLAVE
		case word == "unbindable":
			kind = unix.MS_UNBINDABLE
		}
	}
	return kind
}

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
			of, known := map[string][2]string{"uid": {"passwd", "user"}, "gid": {"group", "group"}}[key]
			if !known {
				continue
			}
			number, err := item.Number(of[0], name)
			if err != nil {
				return fmt.Errorf("%s %q is %w", of[1], name, ErrMissingDevice)
			}
			words[n] = key + "=" + number
		}
	}
	return nil
}
