// SPDX-License-Identifier: Apache-2.0

// Package gate says whether what a node did has worked.
//
// The health checks of an overlay are looked at until all of them have held for their time, or one
// has failed too often. Nothing waits here: [Prober.Look] looks once at what is due and returns a [Record]
// of it; [Record.Judge] is the decision, of a record and a time alone. The record is
// kept in a file of this boot, so that an agent that was restarted goes on where it
// was. What comes of a verdict is decided in package decide.
package gate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// Record describes a change that has not proved itself. Times are seconds
// since the kernel started: a clock that is set must neither pass nor fail anything.
type Record struct {
	Root    string              `json:"root"`    // id of the root that was changed
	Overlay string              `json:"overlay"` // digest of what was put in effect
	Began   int64               `json:"began"`
	Reach   bool                `json:"reach,omitempty"`  // [Reach] is one of the checks
	Checks  map[string]Progress `json:"checks,omitempty"` // by name
}

// Progress holds the results of one check.
type Progress struct {
	Looked   int64  `json:"looked"`          // when the last look ended
	Since    int64  `json:"since,omitempty"` // since when it holds without a failure, 0 where it does not
	Failures int64  `json:"failures,omitempty"`
	Mark     string `json:"mark,omitempty"` // by which one run of a unit differs from the next
	Why      string `json:"why,omitempty"`  // the last failure
}

// Of reports whether the record is about this overlay on this root.
func (r *Record) Of(root, overlay string) bool {
	return r != nil && r.Root == root && r.Overlay == overlay
}

// Reach is the check of a boot of a new generation: the registry, which was reached before it,
// is to be reached from the system, too, at the latest after 16 looks: three to five minutes.
// Any answer counts. No check of a site can have its name.
var Reach = spec.HealthCheck{Name: "registry is reached", Timeout: 10, Interval: 10, Retries: 15}

// State is how a verdict stands.
type State string

// States of a verdict.
const (
	Waiting State = "waiting"
	Passed  State = "passed"
	Failed  State = "failed"
)

// Verdict holds the outcome of a gate.
type Verdict struct {
	State State
	Check string // of Failed: its name
	Why   string // what is waited for, or what failed
	Until int64  // of Waiting: when it passes if everything goes on to hold; 0 where something does not hold
	Next  int64  // of Waiting: when to look again
}

// Judge decides. All checks must hold at the same time: one that held before and
// fails while another is waited for holds no more.
func (r *Record) Judge(checks []spec.HealthCheck) Verdict {
	v := Verdict{State: Passed, Next: math.MaxInt64}
	wait := func(why string) {
		if v.State == Passed {
			v.State, v.Why = Waiting, why
		}
	}
	holds := true
	for _, c := range checks {
		p := r.Checks[c.Name]
		switch {
		case p.Failures > c.Retries:
			why := fmt.Sprintf("%s: %s", c.Name, p.Why)
			if c.Retries > 0 {
				why += fmt.Sprintf(" (failed %d times)", p.Failures)
			}
			return Verdict{State: Failed, Check: c.Name, Why: why}
		case p.Since == 0:
			holds = false
			wait(cmp.Or(joined(c.Name, p.Why), c.Name+" was not looked at yet"))
		case p.Looked-p.Since < c.Soak:
			v.Until = max(v.Until, p.Since+c.Soak)
			wait(fmt.Sprintf("%s holds, and must for %d s", c.Name, c.Soak))
		}
		v.Next = min(v.Next, due(c, p))
	}
	if !holds {
		v.Until = 0
	}
	if v.State == Passed {
		return Verdict{State: Passed, Why: fmt.Sprintf("%d health checks hold", len(checks))}
	}
	return v
}

// NextLook is how long it takes until a check is to be looked at, up is how long the kernel runs.
func (r *Record) NextLook(checks []spec.HealthCheck, up time.Duration) time.Duration {
	return max(time.Second, time.Duration(r.Judge(checks).Next-Seconds(up))*time.Second)
}

// Seconds is a time since the kernel started as a record has it.
func Seconds(up time.Duration) int64 { return int64(up / time.Second) }

func joined(name, why string) string {
	if why == "" {
		return ""
	}
	return name + ": " + why
}

// due is when a check is to be looked at.
func due(c spec.HealthCheck, p Progress) int64 {
	if p.Looked == 0 {
		return 0
	}
	return p.Looked + c.Interval
}

// note returns what is known of a check after one more look, which ended at now. A
// unit that was started again did not hold in between.
func (p Progress) note(now int64, mark string, err error) Progress {
	if err == nil && p.Since != 0 && mark != p.Mark {
		err = errors.New("it was restarted")
	}
	p.Looked, p.Mark = max(now, 1), mark
	switch {
	case err != nil:
		p.Since, p.Why = 0, brief(err)
		p.Failures++
	case p.Since == 0:
		p.Since = p.Looked
	}
	return p
}

// brief is an error in one line of a length that a status can show.
func brief(err error) string {
	const most = 300
	if text := []rune(err.Error()); len(text) > most {
		return string(text[:most]) + "…"
	}
	return err.Error()
}

// limit caps a record that is read back.
const limit = 1 << 20

// Save keeps the record.
func (r *Record) Save(name string) error {
	data, err := spec.Encode(r)
	if err == nil {
		err = durable.WriteFile(name, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the record of the gates: %w", err)
	}
	return nil
}

// Load reads what Save kept; nil where there is none, and where what is there cannot
// be read: then everything is looked at from the start.
func Load(name string) (*Record, error) {
	data, err := ownfiles.ReadFile(name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the gates: %w", err)
	}
	var r Record
	if json.Unmarshal(data, &r) != nil {
		return nil, nil
	}
	return &r, nil
}

// dueNow returns the checks that are to be looked at.
func (r *Record) dueNow(checks []spec.HealthCheck, now int64) []spec.HealthCheck {
	return slices.DeleteFunc(slices.Clone(checks), func(c spec.HealthCheck) bool { return due(c, r.Checks[c.Name]) > now })
}
