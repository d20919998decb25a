// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// rule is one entry of the config with its names resolved; -1 leaves an id alone.
type rule struct {
	uid, gid int64
	mode     rules.Mode
}

// apply returns the permissions that the rule gives a file whose present ones are a.
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
	a.Mode = r.mode.Apply(a.Mode, f.dir)
	return a
}

func (i *Item) parseRule(p spec.PermPath) (rule, error) {
	r := rule{uid: -1, gid: -1}
	err := rules.PermPath(p)
	if err != nil {
		return r, err
	}
	if r.uid, err = i.id(p.Owner, "passwd", func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	}); err != nil {
		return r, err
	}
	if r.gid, err = i.id(p.Group, "group", func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	}); err != nil {
		return r, err
	}
	r.mode, err = rules.ParseMode(p.Mode)
	return r, err
}

func (i *Item) id(name, database string, lookup func(string) (string, error)) (int64, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n < 1<<32-1 {
		return int64(n), nil
	}
	text, err := lookup(name)
	if err != nil {
		return -1, i.makes.NoAccount("/etc/"+database, name)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return -1, fmt.Errorf("%q has no numeric id in %s: %q", name, database, text)
	}
	return int64(n), nil
}

// setID are the bits that a change of owner takes from a program.
var setID uint32 = unix.S_ISUID | unix.S_ISGID

// step is a change that is about to be made to an open file.
type step struct {
	walk    *safepath.Walk // stands on the way to the file
	from    attr           // what the change was decided on
	now, to attr
}

// guards keep users of the node from choosing what a rule of the site acts on.
var guards = check.List[step]{
	// The owner of a directory puts into it what he likes, also another's file
	// under the name of his own.
	{Name: "way", OK: func(s step) error {
		if dir, uid, found := s.walk.Stranger(s.to.UID); found {
			return fmt.Errorf("%s on the way belongs to user %d, neither root nor the wanted owner %d", dir, uid, s.to.UID)
		}
		return nil
	}},
	// The mode was derived from the file that was there then.
	{Name: "same file", OK: func(s step) error {
		if !s.from.same(s.now) || !s.from.is(s.now) {
			return errors.New("the file was changed or replaced meanwhile")
		}
		return nil
	}},
}
