// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// sees notes that everything which verbs have written is known.
func (s *service) sees() { s.known = s.written() }

// written tells one writing of the files that verbs write from the next: of the
// state, and of the book of corrections, of which clear takes entries. Times alone do not:
// a file system's clock stands still for milliseconds, and the machine's may be set back.
type written [2]struct {
	inode, size  uint64
	made, change unix.Timespec
}

func (s *service) written() (w written) {
	for i, name := range []string{"state.json", paths.Corrections} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(s.o.Root, paths.State, name), &st); err == nil { // else there is none yet
			w[i].inode, w[i].size, w[i].made, w[i].change = st.Ino, uint64(st.Size), st.Mtim, st.Ctim
		}
	}
	return w
}

// once opens the node for one act, so that the verbs get a turn in between. What one of
// them wrote stays unknown until everything is looked at, see sees; what the act itself
// writes is known.
func (s *service) once(ctx context.Context, act func(*node.Node, context.Context) (*spec.Status, error)) (*spec.Status, error) {
	n, err := node.Open(ctx, s.o, nil)
	if err != nil {
		s.sees() // the next look is not before its time
		return nil, err
	}
	before := s.written()
	st, err := act(n, ctx)
	if s.known == before {
		s.sees()
	}
	return st, errors.Join(err, n.Close())
}
