// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

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
