// SPDX-License-Identifier: Apache-2.0

package post

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/sign"
)

// spoolMax is how many reports are kept while nobody answers: the oldest goes first.
const spoolMax = 64

// sealed is a signed report that was not taken yet.
type sealed struct {
	seq   uint64
	raw   []byte
	news  bool // it says something else than the one before
	saved bool // it is on the disk
}

// spool holds them in the order of their numbers.
type spool struct {
	dir  string
	list []sealed
}

func (s *spool) name(seq uint64) string { return filepath.Join(s.dir, fmt.Sprintf("%016d.json", seq)) }

// openSpool reads what an earlier process could not send. What cannot be read is put
// away: the next report says all that is true then.
func openSpool(dir string) (*spool, error) {
	if err := ownfiles.Folder(dir); err != nil {
		return nil, fmt.Errorf("open the spool of reports: %w", err)
	}
	names, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("open the spool of reports: %w", err)
	}
	s := &spool{dir: dir}
	for _, entry := range names {
		file := filepath.Join(dir, entry.Name())
		var seq uint64
		_, err := fmt.Sscanf(entry.Name(), "%016d.json", &seq)
		whole := err == nil && s.name(seq) == file
		var raw []byte
		if whole {
			raw, err = ownfiles.ReadFile(file, sign.MaxReport)
		}
		if !whole || err != nil || !strings.HasPrefix(string(raw), "{") {
			if err := os.RemoveAll(file); err != nil { // what a cut left of a write, or somebody's
				return nil, fmt.Errorf("open the spool of reports: %w", err)
			}
			continue
		}
		s.list = append(s.list, sealed{seq, raw, true, true})
	}
	return s, s.bound(spoolMax)
}

// add puts a report last. One without news takes the place of such a one before it.
func (s *spool) add(one sealed) error {
	if n := len(s.list); n > 0 && !one.news && !s.list[n-1].news {
		s.list[n-1] = one // which was not saved
		return nil
	}
	s.list = append(s.list, one)
	return s.bound(spoolMax)
}

// bound forgets the oldest reports where there are more than most.
func (s *spool) bound(most int) error {
	for len(s.list) > most {
		if err := s.drop(); err != nil {
			return err
		}
	}
	return nil
}

// drop forgets the first report.
func (s *spool) drop() error {
	first := s.list[0]
	if first.saved {
		if err := durable.Remove(s.name(first.seq)); err != nil {
			return fmt.Errorf("forget a report: %w", err)
		}
	}
	s.list = s.list[1:]
	return nil
}

// save puts news on the disk that are not there. What says nothing new can be said
// again at any time.
func (s *spool) save() error {
	for i := range s.list {
		one := &s.list[i]
		if one.saved || !one.news {
			continue
		}
		if err := durable.WriteFile(s.name(one.seq), one.raw, 0o600); err != nil {
			return fmt.Errorf("keep a report: %w", err)
		}
		one.saved = true
	}
	return nil
}

// sequence gives out numbers that rise for the life of a key, so that no report is
// taken twice. It writes once for a block of them: a report costs the disk nothing.
//
// It begins at the time in milliseconds where that is more: then a disk that was put
// back to an earlier state, or takes no writes, does not repeat what was sent.
type sequence struct {
	file string
	next uint64
	end  uint64 // all below may be given out
}

const block = 1 << 12

func openSequence(file string, now time.Time) (*sequence, error) {
	s := &sequence{file: file, next: 1}
	data, err := ownfiles.ReadFile(file, 64)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the number of the last report: %w", err)
	default:
		n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 53)
		if err != nil {
			return nil, fmt.Errorf("read the number of the last report: %s: %w", file, err)
		}
		s.next = n
	}
	s.next = max(s.next, uint64(max(0, now.UnixMilli())))
	s.end = s.next
	return s, nil
}

func (s *sequence) take() (uint64, error) {
	if s.next == s.end {
		end := s.end + block
		if err := durable.WriteFile(s.file, fmt.Appendln(nil, end), 0o600); err != nil {
			return 0, fmt.Errorf("keep the number of the last report: %w", err)
		}
		s.end = end
	}
	s.next++
	return s.next - 1, nil
}
