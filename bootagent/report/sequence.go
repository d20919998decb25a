// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

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
