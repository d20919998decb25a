// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/safepath"
)

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
	// Whoever owns a directory puts into it what he likes, also another's file
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
