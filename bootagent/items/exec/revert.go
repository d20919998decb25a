// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// undoing is a revert script on its way to be run.
type undoing struct {
	*undo
	item *Item
}

// revertChecks are what the journal's word is held to: it lies on a disk that may
// have been in other hands.
var revertChecks = check.List[*undoing]{
	{Name: "signed", OK: isSigned},
	{Name: "own directory", OK: directoryIsOurs},
}

// isSigned puts the revert script of a signed overlay in the place of the journal's.
func isSigned(u *undoing) error {
	for _, s := range u.item.signed() {
		if w := s.Script; w.Revert != "" && identity(w, s.Secrets) == u.Hash {
			w.Data, w.Revert = w.Revert, ""
			u.Script = w
			return nil
		}
	}
	return errors.New("no signed overlay on this node has it, so it is not run: undo it by hand")
}

// directoryIsOurs: a link in its place would have the script, and what it says,
// written elsewhere.
func directoryIsOurs(u *undoing) error { return ownfiles.Folder(u.item.script(u.Script).dir) }
