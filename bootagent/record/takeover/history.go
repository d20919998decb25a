// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// run is the last run of a script.
type run struct {
	start time.Time
	exit  int
	cut   bool // it has no exit code
}

// history reads the runs of scripts.
func (f *Found) history() error {
	list, err := os.ReadDir(f.path(Records, "exec"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() || len(e.Name()) != sha256.Size*2 {
			continue
		}
		exit, exitErr := f.number("exec", e.Name(), "exit_code")
		start, startErr := f.number("exec", e.Name(), "last_run_timestamp")
		switch err := cmp.Or(exitErr, startErr); {
		case errors.Is(err, fs.ErrNotExist): // it ran again in Divingbell, too
			f.runs[e.Name()] = run{cut: true}
		case err != nil:
			f.Doubts = append(f.Doubts, fmt.Sprintf("%s/exec/%s: %v", Records, e.Name(), err))
		default:
			f.runs[e.Name()] = run{start: time.Unix(start, 0).UTC(), exit: int(exit)}
		}
	}
	return nil
}

func (f *Found) number(parts ...string) (int64, error) {
	text, err := f.record(parts...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
}

// Ran returns the last run of a script under Divingbell.
func (f *Found) Ran(w spec.Exec) (start time.Time, exit int, ok bool) {
	r, ok := f.last(w)
	return r.start, r.exit, ok && !r.cut
}

// Doubt says of a script of which no run is known why one may have been, "" where none
// was: Divingbell kept a script of that name.
func (f *Found) Doubt(w spec.Exec) string {
	if _, known := f.last(w); known {
		return ""
	}
	if _, err := os.Lstat(f.path(Records, "exec", w.Name)); err != nil {
		return ""
	}
	return "Divingbell ran a script of this name, and kept no run of one with these values: it counts as one that never ran"
}

// last is the last run of a script. A search is not made twice: a node asks at each look.
func (f *Found) last(w spec.Exec) (run, bool) {
	if len(f.runs) == 0 {
		return run{}, false
	}
	key, err := json.Marshal(w)
	if err != nil {
		return run{}, false // of text and numbers there is none
	}
	hash, searched := f.hashes[string(key)]
	if !searched {
		hash = find(w, func(hash string) bool { _, known := f.runs[hash]; return known })
		f.hashes[string(key)] = hash
	}
	r, known := f.runs[hash]
	return r, known
}
