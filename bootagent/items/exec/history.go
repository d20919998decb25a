// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

// Names in a script's directory, beside the script itself.
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
	Unit  string    `json:"unit,omitempty"` // the Runner's id while it runs
}

func (r record) none() bool     { return r.Start.IsZero() }
func (r record) finished() bool { return !r.End.IsZero() }
func (r record) failed() bool   { return r.finished() && r.Exit != 0 }

// overtime reports whether its timeout ended the run, see [process.Exit].
func (r record) overtime() bool { return strings.HasPrefix(r.Cause, "did not end within ") }

// cut is how a run ended of which nobody knows the end.
const cut = "interrupted"

// Cut reports whether a drift is a script that was cut, and is due again.
func Cut(d spec.Drift) bool { return d.Item == Name && d.Action == spec.ActionRun && d.From == cut }

func (r record) String() string {
	switch {
	case r.none():
		return ""
	case !r.finished():
		return cut
	case r.Cause != "":
		return r.Cause
	}
	return fmt.Sprintf("exit %d", r.Exit)
}

// claim is a record that names a run, and the present.
type claim struct {
	record
	boot string
}

// claimChecks check a record before the run that it names is asked for,
// and what is left of it cleared away: it lies on a disk that may have been in other
// hands. No run outlives its boot, whose id is random.
var claimChecks = check.List[claim]{
	{Name: "this boot", OK: func(c claim) error {
		if c.Boot != c.boot {
			return errors.New("it began in another boot")
		}
		return nil
	}},
}

// unit is the Runner's id of an unfinished run, "" where none can be left.
func (i *Item) unit(r record) string {
	if r.finished() || i.claims.Run(claim{r, i.scopes.Kernel}) != nil {
		return ""
	}
	return r.Unit
}

// running reports whether an unfinished run is still going on.
func (i *Item) running(r record) bool {
	unit := i.unit(r)
	return unit != "" && i.runner.Running(unit)
}

// caughtUp returns the record of a run that ended while no agent looked, with its
// end where the runner knows it.
func (i *Item) caughtUp(ctx context.Context, s script, r record) (record, error) {
	unit := i.unit(r)
	if unit == "" || i.running(r) {
		return r, nil
	}
	err := i.runner.Wait(ctx, unit)
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	return i.settled(ctx, s, r, err)
}

// settled writes down how a run has ended, and then forgets it: two may have waited for it, and
// who is second finds the record. It returns that.
func (i *Item) settled(ctx context.Context, s script, r record, err error) (record, error) {
	if errors.Is(err, process.ErrNoAnswer) {
		return r, err
	}
	last, mine, err := i.writeEnd(ctx, s, r, err)
	if err != nil || !mine || r.Unit == "" {
		return last, err
	}
	return last, i.runner.End(r.Unit)
}

// writeEnd returns the record of a run that has ended with err, and whether it is this call that
// wrote it.
func (i *Item) writeEnd(ctx context.Context, s script, r record, end error) (last record, mine bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTime)
	defer cancel()
	dir, err := os.Open(s.dir)
	if err != nil {
		return r, false, err
	}
	defer dir.Close() // only locked
	if err := stall.Lock(ctx, dir, false); err != nil {
		return r, false, fmt.Errorf("lock %s: %w", s.dir, err)
	}
	last, err = s.history()
	if err != nil || last.finished() || !last.Start.Equal(r.Start) || errors.Is(end, process.ErrUnknown) {
		return last, false, err // the other one wrote it down, or it was cut
	}
	last = r.ended(end, i.now())
	return last, true, s.write(last)
}

// lockTime is more than it takes to write a record.
const lockTime = 30 * time.Second

// history is the script's record, the zero one when it never ran. A record that
// cannot be read is an error: to guess could run what must run once.
func (s script) history() (record, error) {
	name := filepath.Join(s.dir, runFile)
	data, err := ownfiles.ReadFile(name, maxRecord)
	if err != nil {
		return record{}, fault.But(err, fs.ErrNotExist)
	}
	return parseRecord(name, data)
}

// history is that of the script, or what is known of it from before caisson had
// the machine.
func (i *Item) history(s script) (record, error) {
	r, err := s.history()
	if err != nil || !r.none() || i.past == nil {
		return r, err
	}
	if start, exit, ok := i.past.Ran(s.want); ok {
		r = record{Name: s.want.Name, Root: i.scopes.Root, Start: start, End: start, Exit: exit, Keep: s.want.Once == "per-machine"}
	}
	return r, nil
}

// Remember writes down what is known of the scripts' runs from before caisson had
// the machine.
func (i *Item) Remember(ctx context.Context) error {
	if i.past == nil {
		return nil
	}
	for _, w := range i.want {
		s := i.script(w)
		before, err := s.history()
		if err != nil || !before.none() {
			continue // Check says what is wrong with it
		}
		r, err := i.history(s)
		if err != nil || r.none() {
			continue // the same
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.write(r); err != nil {
			return err
		}
	}
	return nil
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
	if err := ownfiles.Folder(s.dir); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(s.dir, runFile), append(data, '\n'), 0o600)
}

// forget makes the script one that never ran.
func (s script) forget() error {
	return fault.But(durable.Remove(filepath.Join(s.dir, runFile)), fs.ErrNotExist)
}

// Last is the last run of a script and what it printed.
type Last struct {
	Name   string    `json:"name"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end,omitzero"` // zero: it runs, or was cut
	Result string    `json:"result"`
	Output string    `json:"output"`
}

// Last returns the last run of a wanted script. Its output may hold secrets.
func (i *Item) Last(name string) (*Last, error) {
	at := slices.IndexFunc(i.want, func(w spec.Exec) bool { return w.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("no script %q on this node", name)
	}
	s := i.script(i.want[at])
	r, err := i.history(s)
	if err != nil {
		return nil, err
	}
	if r.none() {
		return nil, fmt.Errorf("script %q has not run", name)
	}
	last := &Last{Name: name, Start: r.Start, End: r.End, Result: r.String()}
	if i.running(r) {
		last.Result = "it runs"
	}
	f, err := ownfiles.Open(filepath.Join(s.dir, logFile))
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil // it ran before caisson had the machine
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	text, err := io.ReadAll(io.LimitReader(f, 2*process.MaxLog))
	last.Output = strings.ToValidUTF8(string(text), "\ufffd")
	return last, err
}
