// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// turn holds the progress of an operation that disturbs: what it has taken on its way to the act,
// and gives back after it.
type turn struct {
	Step    string              `json:"step"`
	Nth     int                 `json:"nth,omitempty"`     // of asking: the condition that is next
	Boot    string              `json:"boot"`              // in which the step began
	Unit    string              `json:"unit,omitempty"`    // of the step's command, for the Runner
	For     time.Time           `json:"for,omitzero"`      // of cron: the time it runs for
	Was     spec.OperationState `json:"was,omitempty"`     // before the turn
	Slot    string              `json:"slot,omitempty"`    // group of which a slot may be held
	Drained bool                `json:"drained,omitempty"` // by this agent, maybe
	Over    bool                `json:"over,omitempty"`    // the act is over, and something is kept
	Yields  bool                `json:"yields,omitempty"`  // it ends without an act
	Outcome string              `json:"outcome,omitempty"` // of the act: why it failed
	What    string              `json:"what,omitempty"`    // for what the step waits
	Why     string              `json:"why,omitempty"`
	Since   time.Time           `json:"since,omitzero"` // since when it waits for that
	Tried   time.Time           `json:"tried,omitzero"` // when the step was last tried in vain
	Up      int64               `json:"up,omitempty"`   // of soaking: since when, in seconds since the kernel started
}

// Steps of a turn.
const (
	asking    = "when"
	undone    = "check" // is it done already?
	taking    = "slot"
	askAgain  = "when again"
	drained   = "drained" // is it drained already, by another?
	draining  = "drain"
	ready     = "ready"
	judged    = "gates"
	undoing   = "undo"
	soaking   = "soak"
	still     = "gates again" // after the soak
	releasing = "release"
)

// tryAgain is the least time between two tries of a step.
const tryAgain = 15 * time.Second

// of reports whether the turn is that of a time of cron.
func (t *turn) of(at time.Time) bool { return t != nil && t.For.Equal(at) }

// to goes on with a step.
func (t *turn) to(step string) {
	t.Step, t.Nth, t.Unit, t.What, t.Why, t.Since, t.Tried, t.Up = step, 0, "", "", "", time.Time{}, time.Time{}, 0
}

// holds reports whether others of the node have to wait for it: something is taken, or it
// was its turn, and what is asked between that and the act takes its time.
func (t *turn) holds() bool {
	return t != nil && (t.Slot != "" || t.Drained || slices.Contains([]string{askAgain, drained, draining, ready}, t.Step))
}

// disturbs reports whether an operation takes turns.
func disturbs(o spec.Operation) bool { return o.Disruptive || o.Order != nil }

// order returns the order of an operation, the zero value where it has none.
func order(o spec.Operation) spec.Order {
	if o.Order == nil {
		return spec.Order{}
	}
	return *o.Order
}

// hold leaves a step to a later look.
func (e *Engine) hold(o spec.Operation, r *record, what, why string) error {
	t := r.Turn
	if t.What != what {
		t.Since = e.Now().UTC()
	}
	t.What, t.Why, t.Tried = what, why, e.Now().UTC()
	return e.save(o, *r)
}

// early reports whether a step was tried in vain a moment ago.
func (e *Engine) early(t *turn) bool {
	since := e.Now().Sub(t.Tried)
	return t.Why != "" && t.Unit == "" && since >= 0 && since < tryAgain
}

// turn says in a status what a turn waits for.
func (v *verdict) turn(o spec.Operation, r record) {
	t := r.Turn
	if t != nil && t.Step != taking { // what was asked for may have been refused
		v.status.Slot = t.Slot
	}
	switch {
	case t == nil:
	case v.act == begin && t.Why != "" && !t.Over, v.act == giveBack && t.Why != "":
		v.wait(t.What, t.Why)
		v.status.Since = t.Since
	case v.act == begin && t.Step == draining:
		v.status.State, v.status.Detail = spec.OperationRunning, "the node is drained"
	case v.act == giveBack:
		v.status.State, v.status.Detail = spec.OperationRunning, "it is over; its turn ends: "+t.Step
	case v.act == rest && t.Over && r.State == spec.OperationFailed:
		v.status.Detail += t.kept()
	}
}

// kept says what a turn keeps that is over.
func (t *turn) kept() string {
	switch {
	case t.Slot != "" && t.Drained:
		return "; it keeps its slot of " + t.Slot + ", and the node stays drained"
	case t.Slot != "":
		return "; it keeps its slot of " + t.Slot
	case t.Drained:
		return "; the node stays drained"
	}
	return ""
}

// ask runs a command of a step. over is false while it runs; said is how it ended.
func (e *Engine) ask(ctx context.Context, o spec.Operation, r *record, c spec.Command) (over bool, said, err error) {
	t := r.Turn
	log := filepath.Join(e.dir(o), "turn.log")
	if t.Unit == "" {
		if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, nil, err
		}
		id, err := e.Runner.Start(ctx, command("caisson-turn-", o, c, log))
		if err != nil {
			return true, err, nil
		}
		t.Unit = id
		go process.KeepSmall(e.Runner, id, log)
		if err := e.save(o, *r); err != nil {
			return false, nil, err
		}
	}
	for range 20 { // most are over at once: a look less for each of them
		if !e.Runner.Running(t.Unit) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if e.Runner.Running(t.Unit) {
		return false, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	said = e.Runner.Wait(ctx, t.Unit)
	switch {
	case ctx.Err() != nil:
		return false, nil, ctx.Err()
	case errors.Is(said, process.ErrNoAnswer):
		return false, nil, said
	}
	id := t.Unit
	t.Unit = ""
	if err := e.save(o, *r); err != nil {
		return false, nil, err
	}
	return !errors.Is(said, process.ErrUnknown), said, e.Runner.End(id) // unknown: an agent that was restarted began it
}

// command is how a command of an operation is run.
func command(prefix string, o spec.Operation, c spec.Command, log string) process.Command {
	return process.Command{Name: prefix + digest.Hex(o.ID)[:16], Args: c.Argv, Dir: "/", Log: log,
		Limit: time.Duration(c.Timeout) * time.Second,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
			"CAISSON_OPERATION=" + o.Name}}
}

// release gives a turn's slot back.
func (e *Engine) release(ctx context.Context, m *spec.Maintenance, group string) error {
	if e.Slots == nil {
		return errNoSlots
	}
	s, ok := m.Slots[group]
	if !ok {
		return fmt.Errorf("the group %s is not published any more: release the slot where it is counted", group)
	}
	return e.Slots.Release(ctx, group, s)
}

var errNoSlots = errors.New("slots are not taken here")

// unsynchronised says why nobody has set the clock.
func (e *Engine) unsynchronised() string {
	const what = "the clock is not synchronised: "
	s, ok := spec.TimeServiceIn(func(path string) bool {
		_, err := os.Lstat(filepath.Join(e.Root, path))
		return err == nil
	})
	switch {
	case !ok:
		return what + "this system has none of " + strings.Join(spec.TimePackages(), ", ")
	case e.Units == nil:
		return what + s.Unit + " cannot be asked without systemd"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	state, since, err := e.Units.State(ctx, s.Unit)
	switch {
	case err != nil:
		return what + err.Error()
	case state != "active":
		return what + s.Unit + " is not active"
	case !e.tellsKernel(s):
		return what + s.Unit + " does not tell the kernel: rtcsync is missing in " + s.Config
	}
	servers := "its servers"
	if len(e.Servers) > 0 {
		servers = strings.Join(e.Servers, ", ")
	}
	return fmt.Sprintf("%sno time that %s accepts came from %s since it started, at %s", what, s.Unit, servers, uptime.Moment(since))
}

// tellsKernel reports whether a service lets the kernel know of the time that it accepts, as far as
// its files can be read.
func (e *Engine) tellsKernel(s spec.TimeService) bool {
	parts, _ := filepath.Glob(filepath.Join(e.Root, s.Parts)) // the pattern is ours, so never malformed
	var all strings.Builder
	for _, name := range append(parts, filepath.Join(e.Root, s.Config)) {
		text, err := os.ReadFile(name)
		if err != nil {
			return true
		}
		fmt.Fprintf(&all, "%s\n", text)
	}
	return s.Tells(all.String())
}

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
	if err != nil {
		return r, fault.In(fault.But(err, fs.ErrNotExist), "ledger")
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
