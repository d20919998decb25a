// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"fmt"
	"os/user"
	"regexp"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// rule is one entry of the config with its names resolved; -1 leaves an id alone.
type rule struct {
	uid, gid int64
	mode     []clause
}

// clause is one step of a mode: keep these bits, then set those. A symbolic X
// adds to set only where the file is a directory or executable.
type clause struct {
	keep, set, setX uint32
}

// apply is what the rule makes of a file that is a by now.
func (r rule) apply(a attr, f file) attr {
	was := a
	if r.uid >= 0 {
		a.UID = uint32(r.uid)
	}
	if r.gid >= 0 {
		a.GID = uint32(r.gid)
	}
	if a.UID != was.UID || a.GID != was.GID {
		a.Mode = f.without(a.Mode)
	}
	for _, c := range r.mode {
		executable := f.dir || a.Mode&0o111 != 0
		a.Mode = a.Mode&c.keep | c.set
		if executable {
			a.Mode |= c.setX
		}
	}
	return a
}

func parseRule(p spec.PermPath) (rule, error) {
	r := rule{uid: -1, gid: -1}
	var err error
	if r.uid, err = id(p.Owner, "user", func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	}); err != nil {
		return r, err
	}
	if r.gid, err = id(p.Group, "group", func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	}); err != nil {
		return r, err
	}
	r.mode, err = parseMode(p.Mode)
	return r, err
}

func id(name, kind string, lookup func(string) (string, error)) (int64, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n < 1<<32-1 {
		return int64(n), nil
	}
	text, err := lookup(name)
	if err != nil {
		return -1, fmt.Errorf("there is no %s %q", kind, name)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return -1, fmt.Errorf("%s %q has no numeric id: %q", kind, name, text)
	}
	return int64(n), nil
}

var (
	octal    = regexp.MustCompile(`^[0-7]{1,4}$`)
	symbolic = regexp.MustCompile(`^([ugoa]*)([-+=])([rwxXst]*)$`)
)

// parseMode reads octal text, all twelve bits, or chmod(1)'s symbolic form
// without the copying of one class to another, which is not the same when done
// twice. Without "ugoa" the classes are all three; there is no umask.
func parseMode(text string) ([]clause, error) {
	if text == "" {
		return nil, nil
	}
	if octal.MatchString(text) {
		n, err := strconv.ParseUint(text, 8, 32)
		return []clause{{set: uint32(n)}}, err
	}
	var mode []clause
	for _, part := range strings.Split(text, ",") {
		m := symbolic.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("the mode %q is neither octal nor of chmod(1)'s symbolic form", text)
		}
		mode = append(mode, symbol(m[1], m[2], m[3]))
	}
	return mode, nil
}

func symbol(who, op, what string) clause {
	if who == "" || strings.Contains(who, "a") {
		who = "ugo"
	}
	var c clause
	var whole uint32
	for _, class := range who {
		shift, special := uint32(6), uint32(0o4000)
		switch class {
		case 'g':
			shift, special = 3, 0o2000
		case 'o':
			shift, special = 0, 0
		}
		whole |= 7<<shift | special
		for _, p := range what {
			switch p {
			case 'r':
				c.set |= 4 << shift
			case 'w':
				c.set |= 2 << shift
			case 'x':
				c.set |= 1 << shift
			case 'X':
				c.setX |= 1 << shift
			case 's':
				c.set |= special
			case 't':
				c.set |= 0o1000
			}
		}
	}
	c.keep = 0o7777
	switch op {
	case "-":
		c.keep &^= c.set | c.setX
		c.set, c.setX = 0, 0
	case "=":
		c.keep &^= whole
	}
	return c
}
