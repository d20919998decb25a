// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// copies are the files that hold the state, the one that is written first first: it is
// never the older one. The second is behind by the one write that a power cut ended, since
// the next process that starts makes them equal (see [Folder.IsUneven]). Where the first is then
// lost, what that write said is, which nothing else on the disk could tell; the floor is not: what
// raises it is kept, signed, before the state is written and until after, and package track raises
// the floor to it and says what was damaged. A count of writes would add nothing: that of a copy
// that cannot be read cannot be read either.
var copies = []string{"state.json", "state.copy.json"}

// ErrDamaged is returned where there is a state and no copy of it can be read. It
// is not an empty state, which would forget the floor.
var ErrDamaged = errors.New("the state cannot be read")

// Load reads the state. Where there is none yet it returns that of a node that
// follows with floor zero.
//
// What is kept in memory only, since the disk takes no writes, is newer than that.
func (f *Folder) Load() (*State, error) {
	if f.known != nil {
		return f.known.Clone(), nil
	}
	s, err := f.loadBeside()
	if s == nil && err == nil {
		s, err = f.loadCopy()
	}
	if err == nil && f.alone {
		f.known = s.Clone()
	}
	return s, err
}

// Alone says that no other process writes the state as long as the folder is used, as the one
// who has the node's lock may: it is read once.
func (f *Folder) Alone() { f.alone = true }

func (f *Folder) loadCopy() (*State, error) {
	s, damage := f.load()
	switch {
	case s != nil:
		return s, nil
	case damage != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, damage)
	}
	return &State{Tracking: spec.Following}, nil
}

// Damage returns what is wrong with copies of the state that cannot be read.
func (f *Folder) Damage() error {
	_, damage := f.load()
	return damage
}

// IsUneven reports whether the second copy is missing or not what the first one is, as after
// a power cut between the two writes. Saving what [Folder.Load] returns mends it.
func (f *Folder) IsUneven() bool {
	first, err := ownfiles.ReadFile(f.Path(copies[0]), limit)
	if err != nil {
		return false // there is no state, or Damage says it
	}
	second, err := ownfiles.ReadFile(f.Path(copies[1]), limit)
	return err != nil || !bytes.Equal(first, second)
}

// load returns the first copy that can be read, nil where there is none. A first one that is
// not there while the second is has been lost: it is written first.
func (f *Folder) load() (s *State, damage error) {
	var absent error
	for _, name := range copies {
		data, err := ownfiles.ReadFile(f.Path(name), limit)
		if errors.Is(err, fs.ErrNotExist) {
			absent = fmt.Errorf("read %s: %w", f.Path(name), err)
			continue
		}
		var read *State
		if err == nil {
			read, err = parse(data)
		}
		if err != nil {
			damage = errors.Join(damage, fmt.Errorf("read %s: %w", f.Path(name), err))
			continue
		}
		if s == nil {
			damage = errors.Join(damage, absent)
			s = read
		}
	}
	return s, damage
}

// Save replaces the state, both copies of it.
func (f *Folder) Save(s *State) error {
	f.known = nil
	data, err := encode(s)
	if err != nil {
		return err
	}
	for _, name := range copies {
		if err := write(f.Path(name), data); err != nil {
			return fmt.Errorf("write state: %w", err)
		}
	}
	if f.beside == "" {
		return nil
	}
	return fault.In(fault.But(os.Remove(f.beside), fs.ErrNotExist), "write state")
}

// SetDHCPName records the name that DHCP gave, "" where the overlay was found
// without it.
func (f *Folder) SetDHCPName(name string) error {
	s, err := f.Load()
	if err != nil || s.DHCPName == name {
		return err
	}
	s.DHCPName = name
	return f.Save(s)
}

// The checksum is the first field, and covers the bytes after it.
const sumField = `{"sum":"`

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(s *State) ([]byte, error) {
	data, err := spec.Encode(s)
	if err != nil {
		return nil, err
	}
	body := data[1:] // without its brace
	return fmt.Appendf(nil, "%s%08x\",%s", sumField, crc32.Checksum(body, castagnoli), body), nil
}

func parse(data []byte) (*State, error) {
	rest, begins := bytes.CutPrefix(data, []byte(sumField))
	sum, body, ok := bytes.Cut(rest, []byte(`",`))
	if !begins || !ok || fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)) != string(sum) {
		return nil, errors.New("its checksum is wrong")
	}
	var s State
	// Not spec.Decode: the loader's agent and the layer's write the same file, and
	// either may be the older one.
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	switch s.Tracking {
	case spec.Following, spec.Frozen:
	default:
		return nil, fmt.Errorf("unknown tracking %q", s.Tracking)
	}
	return &s, nil
}

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
	if err != nil {
		return nil, fault.In(fault.But(err, fs.ErrNotExist), "read %s", f.beside)
	}
	return parse(data)
}
