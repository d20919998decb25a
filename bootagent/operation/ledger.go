// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/internal/digest"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Phases of a run.
const (
	checking = "check"   // is it done already?
	checked  = "checked" // it is not; the act comes next
	acting   = "exec"
	leaving  = "reboot" // the act is over when the machine has booted again
	judging  = "judge"  // after a reboot: was it done?
	after    = "after"  // the act is over; the turn has to end
)

// record holds the node's record of one operation.
type record struct {
	ID       string              `json:"id"`
	Name     string              `json:"name"`
	State    spec.OperationState `json:"state"` // running, done or failed; empty: it never ran
	Phase    string              `json:"phase,omitempty"`
	Unit     string              `json:"unit,omitempty"` // of the run, for the Runner
	Boot     string              `json:"boot,omitempty"` // of the run
	Attempts int64               `json:"attempts,omitempty"`
	Began    time.Time           `json:"began,omitzero"`
	Ended    time.Time           `json:"ended,omitzero"`
	EndedUp  int64               `json:"endedUp,omitempty"` // of leaving: the same in seconds since the kernel started
	Detail   string              `json:"detail,omitempty"`
	Handled  time.Time           `json:"handled,omitzero"` // of cron: times up to here are settled
	Missed   int64               `json:"missed,omitempty"`
	Asked    string              `json:"asked,omitempty"`  // now or again: what an operator asked for
	Turn     *turn               `json:"turn,omitempty"`   // of what disturbs, see turn
	Target   string              `json:"target,omitempty"` // of a swap: the root that the machine was rebooted into
	From     string              `json:"from,omitempty"`   // of a swap: the root that it left
}

// What an operator may ask for.
const (
	now   = "now"   // whatever the windows are
	again = "again" // in its windows
)

// maxRecord caps a record, in bytes.
const maxRecord = 64 << 10

// dir is the directory of one operation.
func (e *Engine) dir(o spec.Operation) string {
	return filepath.Join(e.Dir, digest.Hex(o.ID))
}

// log is the file with the output of an operation's last run.
func (e *Engine) log(o spec.Operation) string { return filepath.Join(e.dir(o), "log") }

// load returns the record of an operation, an empty one if there is none. What is not
// an operation has none.
func (e *Engine) load(o spec.Operation) (record, error) {
	check := rules.Operation
	if isSwap(o) {
		check = func(o spec.Operation) error { return rules.Order(*o.Order) }
	}
	if err := check(o); err != nil {
		return record{ID: o.ID, Name: o.Name}, fmt.Errorf("operation %q: %w", o.Name, err)
	}
	return e.read(o)
}

// read is load without asking what the operation is.
func (e *Engine) read(o spec.Operation) (record, error) {
	name := filepath.Join(e.dir(o), "record.json")
	r := record{ID: o.ID, Name: o.Name}
	data, err := ownfiles.ReadFile(name, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("ledger: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil || r.ID != o.ID {
		return r, fmt.Errorf("ledger: %s is damaged: whether %s ran is not known", name, o.Name)
	}
	return r, nil
}

func (e *Engine) save(o spec.Operation, r record) error {
	for _, dir := range []string{e.Dir, e.dir(o)} { // a link would have the agent write elsewhere
		if err := ownfiles.Folder(dir); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return durable.WriteFile(filepath.Join(e.dir(o), "record.json"), data, 0o600)
}
