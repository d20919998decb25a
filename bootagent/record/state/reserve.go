// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// reserveFile is room on the state disk that nothing needs but a verdict: that a change is
// to be taken back must be noted before it is, also where the change has filled the disk.
const reserveFile = "reserve"

// reserve is its size in bytes: both copies of the state, the journal of what is taken
// back, and the black box. It is made where the disk has many times that.
const (
	reserve = 256 << 10
	plenty  = 64 * reserve
)

// Reserve makes the room where it is missing and the disk has plenty. Without it
// nothing is worse than it was.
func (f *Folder) Reserve() error {
	var at unix.Statfs_t
	if info, err := os.Stat(f.Path(reserveFile)); err == nil && info.Size() == reserve {
		return nil
	}
	if err := unix.Statfs(f.dir, &at); err != nil || at.Bavail*uint64(at.Bsize) < plenty {
		return err
	}
	return durable.WriteFile(f.Path(reserveFile), make([]byte, reserve), 0o600)
}

// MakeRoom gives the room back where the disk is full, for what is written from now on.
func (f *Folder) MakeRoom() error {
	var at unix.Statfs_t
	if err := unix.Statfs(f.dir, &at); err != nil || at.Bavail*uint64(at.Bsize) >= reserve {
		return err
	}
	return durable.Remove(f.Path(reserveFile))
}

// Beside names a file in memory where a verdict is kept that the disk does not take.
func (f *Folder) Beside(name string) { f.beside = name }

// SaveVerdict is Save for what must hold before something is taken back. Where the disk
// takes no writes it holds until the machine is started over; see [Folder.Unsaved].
func (f *Folder) SaveVerdict(s *State) error {
	err := f.MakeRoom()
	if err == nil {
		err = f.Save(s)
	}
	if err == nil || f.beside == "" {
		return err
	}
	data, encodeErr := encode(s)
	if encodeErr == nil {
		encodeErr = durable.WriteFile(f.beside, data, 0o600)
	}
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	return nil
}

// Unsaved says that what this node has decided is in memory only, nil where it is on the
// disk.
func (f *Folder) Unsaved() error {
	switch s, err := f.loadBeside(); {
	case err != nil:
		return err
	case s == nil:
		return nil
	}
	return errors.New("the state disk takes no writes: what was decided since is lost when the machine starts over")
}

// loadBeside returns what is in memory only, nil where that is nothing.
func (f *Folder) loadBeside() (*State, error) {
	if f.beside == "" {
		return nil, nil
	}
	data, err := ownfiles.ReadFile(f.beside, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.beside, err)
	}
	return parse(data)
}
