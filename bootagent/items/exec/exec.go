// SPDX-License-Identifier: Apache-2.0

// Package exec runs the site's scripts when they are due.
//
// A script's identity is its name, text, arguments and environment, and what its secrets
// are sealed as; its policy is not part of it, so a changed interval fires nothing. What ran, when and how
// it ended is kept beside the script in the state directory. The start is
// recorded before the run, so a run that was cut counts as never finished. The
// package is not a scheduler: the agent asks at every pass. How a program is run
// and ended is package process's; only package items imports this one.
package exec

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// Name is the kind.
const Name = "exec"

// Item runs the wanted scripts.
type Item struct {
	want    []spec.Exec
	dir     string
	runner  process.Runner
	scopes  item.Scopes
	journal item.Journal
	log     func(format string, args ...any)
	signed  func() []Signed
	secrets Secrets
	reverts check.List[*undoing]
	past    Past
	claims  check.List[claim]
	now     func() time.Time

	background sync.WaitGroup
	mu         sync.Mutex
	late       []error // of scripts in the background
}

// Host is where scripts run.
type Host struct {
	Dir     string // below the state directory
	Runner  process.Runner
	Scopes  item.Scopes
	Journal item.Journal
	// Signed returns the scripts of every overlay whose signature this node can verify: a revert
	// script is run only when it is one of theirs, for the journal lies on a disk that may have
	// been in other hands.
	Signed func() []Signed
	Log    func(format string, args ...any)

	Past    Past    // makes runs before caisson count; nil knows of none
	Secrets Secrets // without them scripts that need one are not run
}

// New returns the item for want, sorted by name byte for byte.
func New(want []spec.Exec, on Host) *Item {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b spec.Exec) int { return strings.Compare(a.Name, b.Name) })
	return &Item{want: want, dir: on.Dir, runner: on.Runner, scopes: on.Scopes, journal: on.Journal, signed: on.Signed, log: on.Log,
		past: on.Past, secrets: on.Secrets, reverts: revertChecks, claims: claimChecks, now: time.Now}
}

// Past reports the runs before caisson had the machine.
type Past interface {
	Ran(w spec.Exec) (start time.Time, exit int, ok bool) // the last run of a script
	Doubt(w spec.Exec) string                             // why there may be one that is not known; "" where there is none
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// Check implements item.Item. Scripts behind one that has to end, or to succeed,
// first are deferred.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	wanted, names := map[string]bool{}, map[string]bool{}
	waits := "" // why the scripts that follow have to wait
	for _, w := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := i.stand(w)
		if names[w.Name] {
			d.Action, d.Reason = spec.ActionRefuse, "the name is used twice"
		} else {
			wanted[Key(w, i.secrets.All)] = true
		}
		names[w.Name] = true
		switch {
		case d.Action == "":
			continue
		case d.Action != spec.ActionRun:
			waits = cmp.Or(waits, holds(w, d.Action))
		case waits != "":
			d.Action, d.Reason = spec.ActionDefer, waits
		}
		drift = append(drift, d)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, e := range item.Unwanted(i.journal, Name, wanted) {
		drift = append(drift, spec.Drift{Item: Name, Key: e.Key, From: "run", To: "reverted", Action: spec.ActionRemove})
	}
	return drift, nil
}

// stand is how a script stands by itself, with no action where nothing is to be done
// about it. A changed script is another setting.
func (i *Item) stand(w spec.Exec) spec.Drift {
	s := i.script(w)
	d := spec.Drift{Item: Name, Key: w.Name, To: "run of " + s.hash[:8]}
	err := validate(w)
	var r record
	if err == nil {
		r, err = i.history(s)
	}
	if err != nil {
		d.Action, d.Reason = spec.ActionRefuse, err.Error()
		return d
	}
	if why := i.lacks(w); why != "" {
		d.Action, d.Reason = spec.ActionCannot, why
		return d
	}
	d.From = i.current(w, r).String()
	if d.Action, d.Reason = i.verdict(w, r); d.Action == spec.ActionRun && r.none() && i.past != nil && cmp.Or(w.Rerun, "always") != "always" {
		d.Reason = i.past.Doubt(w)
	}
	return d
}

// Again reports whether a drift is a script that has run, and is due again: nothing is
// wrong with one that ended well.
func Again(d spec.Drift) (again, well bool) {
	again = d.Item == Name && d.Action == spec.ActionRun && d.From != ""
	return again, again && d.From == "exit 0"
}

// halts reports whether the scripts after w wait until it succeeds.
func halts(w spec.Exec) bool { return w.Blocking == "foreground_halt_pod_on_failure" }

// holds returns why the scripts behind w have to wait when action is due for
// it, and is not done now; "" where they need not.
func holds(w spec.Exec, action string) string {
	switch {
	case action == spec.ActionDefer && w.Blocking != "background":
		return fmt.Sprintf("it waits for %q, which runs", w.Name)
	case action != "" && halts(w):
		return fmt.Sprintf("it waits for %q to succeed, which asks for that", w.Name)
	}
	return ""
}

// verdict is due's answer as a drift's action and reason.
func (i *Item) verdict(w spec.Exec, r record) (action, reason string) {
	if i.running(r) {
		return spec.ActionDefer, "it runs since " + r.Start.Format(time.RFC3339)
	}
	r = i.current(w, r)
	run, next := due(w, r, i.scopes.Kernel, i.now())
	if run {
		return spec.ActionRun, ""
	}
	if !r.failed() {
		return "", ""
	}
	how := "ended with " + r.String()
	if r.overtime() {
		how = r.Cause
	}
	reason = fmt.Sprintf("it %s at %s; its output is in %s; %s", how, r.End.Format(time.RFC3339),
		filepath.Join(i.script(w).dir, logFile), next)
	if w.OnFailure == "rollback" {
		return spec.ActionRefuse, reason // a change that asks for it cannot be made yet
	}
	return spec.ActionFailed, reason
}

// current is the history as far as it counts for this root.
func (i *Item) current(w spec.Exec, r record) record {
	if r.Root != i.scopes.Root && !lasts(w, r) {
		return record{}
	}
	return r
}

// undo holds the journal's data to take a script back.
type undo struct {
	Hash   string    `json:"hash"`
	Script spec.Exec `json:"script"` // Data is the revert script
}

// failure is a script's own: it stands in the record, so Check shows it.
type failure struct{ error }

// Apply implements item.Item: what is due by now, one after another, and nothing behind
// a script that has to succeed first, even if another run owes that one. A script that fails
// degrades the node; it is an error of this run only where it asks for that.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	dueNow := item.Due(drift, spec.ActionRun)
	var errs []error
	for _, w := range i.want {
		if !dueNow[w.Name] {
			d := i.stand(w)
			if _, well := Again(d); !well && holds(w, d.Action) != "" {
				break
			}
			continue
		}
		delete(dueNow, w.Name)
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		failed, err := i.apply(ctx, w)
		var own failure
		switch {
		case err == nil:
		case errors.As(err, &own) && w.OnFailure != "rollback":
			i.log("run script %q: %v", w.Name, err)
		default:
			errs = append(errs, fmt.Errorf("run script %q: %w", w.Name, err))
		}
		if failed && halts(w) {
			i.log("scripts after %q are not run until it succeeds, as it asks", w.Name)
			break
		}
	}
	return errors.Join(append(errs, i.sweep(), i.collect())...)
}

// apply runs one script if it still is due, and reports whether it has failed, now
// or while nobody looked.
func (i *Item) apply(ctx context.Context, w spec.Exec) (failed bool, err error) {
	s := i.script(w)
	r, err := i.history(s)
	if err != nil {
		return true, err
	}
	if r, err = i.caughtUp(ctx, s, r); err != nil {
		return true, err
	}
	if action, _ := i.verdict(w, r); action != spec.ActionRun {
		return action != "", nil
	}
	if w.Revert != "" {
		if err := i.rememberRevert(s); err != nil {
			return true, err
		}
		if err := ctx.Err(); err != nil {
			return true, err
		}
	}
	err = i.run(ctx, s, i.current(w, r))
	return err != nil, err
}

func (i *Item) rememberRevert(s script) error {
	back := s.want
	back.Data, back.Revert = s.want.Revert, ""
	e := item.Entry{Item: Name, Key: s.key(), Prior: item.Raw(nil), Applied: item.Raw(undo{s.hash, back}), Scope: item.Root}
	if s.want.Once == "per-machine" && i.scopes.Disk != "" {
		e.Scope = item.Disk
	}
	return i.journal.Record(e)
}

// Restore implements item.Item: it runs the revert scripts, newest name first.
// Where that is done, the script counts as never run.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var errs []error
	for _, e := range slices.Backward(entries) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var u undo
		if err := json.Unmarshal(e.Applied, &u); err != nil {
			return fmt.Errorf("revert script %q: %w", e.Key, err)
		}
		err := i.reverts.Run(&undoing{&u, i})
		if err == nil {
			err = i.revert(ctx, u)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, fmt.Errorf("revert script %q: %w", strings.TrimSuffix(e.Key, "@"+u.Hash[:min(16, len(u.Hash))]), err))
			continue
		}
		errs = append(errs, item.Forget(ctx, i.journal, e))
	}
	return errors.Join(errs...)
}

// Key names a script in the journal, with the secrets of its overlay.
func Key(w spec.Exec, secrets []spec.Secret) string {
	return script{want: w, hash: identity(w, secrets)}.key()
}

func (i *Item) revert(ctx context.Context, u undo) error {
	s := i.script(u.Script)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	defer item.BeginScript(ctx, s.limit())()
	id, err := i.start(ctx, s)
	if err != nil {
		return err
	}
	if err := errors.Join(i.wait(ctx, s, id), i.runner.End(id)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ran := script{want: u.Script, hash: u.Hash, dir: i.place(u.Hash)}
	return ran.forget()
}

// Wait ends when no script of this item runs in the background any more.
func (i *Item) Wait() error {
	i.background.Wait()
	return i.collect()
}

// collect returns what went wrong around background scripts since it was last asked.
func (i *Item) collect() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	err := errors.Join(i.late...)
	i.late = nil
	return err
}
