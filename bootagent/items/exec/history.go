// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
)

// Names in a script's folder, beside the script itself.
const (
	runFile = "run.json"
	logFile = "log"
)

const maxRecord = 64 << 10

// record is the history of one script: its last run, and the counts.
type record struct {
	Name  string    `json:"name"`
	Root  string    `json:"root"` // root id of the last run
	Boot  string    `json:"boot"` // boot id of the last run
	Start time.Time `json:"start"`
	End   time.Time `json:"end,omitzero"` // zero: not finished
	Exit  int       `json:"exit"`         // 128+n when signal n ended it
	Cause string    `json:"cause,omitempty"`
	Keep  bool      `json:"keep,omitempty"` // it counts for the machine, not only for this root
	Rerun int64     `json:"rerun"`          // runs that followed a success
	Retry int64     `json:"retry"`          // runs that followed a failure, since the last success
	PID   int       `json:"pid,omitempty"`
	Born  string    `json:"born,omitempty"` // start time of that process in /proc/PID/stat
}

func (r record) none() bool     { return r.Start.IsZero() }
func (r record) finished() bool { return !r.End.IsZero() }
func (r record) failed() bool   { return r.finished() && r.Exit != 0 }

func (r record) String() string {
	switch {
	case r.none():
		return ""
	case !r.finished():
		return "interrupted"
	case r.Cause != "":
		return r.Cause
	}
	return fmt.Sprintf("exit %d", r.Exit)
}

// running reports whether the process of an unfinished run is still there.
func (r record) running(proc string) bool {
	if r.finished() || r.PID == 0 {
		return false
	}
	born, err := birth(proc, r.PID)
	return err == nil && born == r.Born
}

// birth is field 22 of /proc/PID/stat, see proc_pid_stat(5). With the pid it
// names one process of a boot.
func birth(proc string, pid int) (string, error) {
	data, err := os.ReadFile(filepath.Join(proc, fmt.Sprint(pid), "stat"))
	if err != nil {
		return "", err
	}
	// The second field is the command in parentheses and may hold anything.
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 || fields[0] == "Z" {
		return "", errors.New("not running")
	}
	return fields[19], nil
}

// history is the script's record, the zero one when it never ran. A record that
// cannot be read is an error: to guess could run what must run once.
func (s script) history() (record, error) {
	name := filepath.Join(s.dir, runFile)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	if info.Size() > maxRecord {
		return record{}, fmt.Errorf("%s is larger than %d bytes", name, maxRecord)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return record{}, err
	}
	return parseRecord(name, data)
}

func parseRecord(name string, data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("%s is damaged: %w; remove it to let the script run again", name, err)
	}
	return r, nil
}

func (s script) write(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(s.dir, runFile), append(data, '\n'), 0o600)
}

// sweep removes what scripts left that are not wanted any more. The record of one
// that may run only once on this machine or root stays: it may be wanted again.
func (i *Item) sweep() error {
	folders, err := os.ReadDir(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, w := range i.want {
		wanted[i.script(w).dir] = true
	}
	var errs []error
	for _, f := range folders {
		s := script{dir: filepath.Join(i.dir, f.Name())}
		r, err := s.history()
		if err != nil || wanted[s.dir] || r.running(i.proc) {
			continue
		}
		if r.none() || !r.Keep && r.Root != i.scopes.Root {
			errs = append(errs, os.RemoveAll(s.dir))
			continue
		}
		for _, name := range []string{filepath.Base(r.Name), logFile, logFile + ".old"} {
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// forget makes the script one that never ran.
func (s script) forget() error {
	err := durable.Remove(filepath.Join(s.dir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
