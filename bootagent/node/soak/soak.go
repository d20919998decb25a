// SPDX-License-Identifier: Apache-2.0

// Package soak keeps account of what is in effect and has yet to prove itself by the health
// checks of its overlay, of the checks that go on being looked at afterwards, and of those
// that are looked at after an operation. It says what they have found; what follows is
// package decide's.
package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Soak is that of an open node.
type Soak struct {
	Dir          string // prefix of every path, for tests
	Root, Kernel string // ids of the root and of the boot of its kernel
	Owner        *record.Owner
	Tracker      *track.Tracker // nil where no key is trusted
	Running      func() (*track.Found, error)
	Up           func() time.Duration
	Dial         func(ctx context.Context) error // asks the registry
	Runner       process.Runner                  // of checks; nil is process groups
	Systemd      bool                            // it runs here
	Log          Log
}

// Log is where it is written down what a node does.
type Log interface {
	Record(event string, fields ...events.Field)
	Note(g state.Generation, err error, e spec.Event) // into the black box
	Say(format string, args ...any)
}

func (so *Soak) path(name string) string { return filepath.Join(so.Dir, name) }

// Judged is a change that has not proved itself: what is in effect, what is known of
// it, and what it is judged by.
type Judged struct {
	Found  *track.Found
	Record gate.Record
}

// Checks are those of its overlay, and [gate.Reach] where its boot has to show that.
func (j *Judged) Checks() (checks []spec.HealthCheck) {
	if j.Record.Reach {
		checks = append(checks, gate.Reach)
	}
	if j.Found.Overlay.Gates != nil {
		checks = append(checks, j.Found.Overlay.Gates.Checks...)
	}
	return checks
}

// MustReach reports whether a generation that this root came up with has to reach the registry
// to prove itself: before this boot it was reached, by the loader or by the root before. The
// boot is all that shows whether what it brought cuts the node off, whatever that is. Without
// a way back nothing would follow.
func (so *Soak) MustReach(s *state.State, found *track.Found) bool {
	if boot := so.Owner.Boot(); boot.Mode == spec.ModeAttached || !boot.Heard() || !found.Generation.Pair(boot.Generation) {
		return false
	}
	back := s.Back(found.Generation)
	if back == nil {
		return false
	}
	_, err := so.Tracker.Recall(back)
	return err == nil // what cannot be read is not a way back
}

// Unread names the part of a proved generation that only a start of its program reads, and
// that no boot has come up with; see [state.Generation.Unread].
func (so *Soak) Unread(s *state.State, g state.Generation) string {
	boot, best := so.Owner.Boot(), s.Best()
	booted := g.Pair(boot.Generation)
	switch {
	case boot.Mode == spec.ModeAttached || best == nil || booted && (boot.Heard() || s.Back(g) == nil):
		return ""
	case booted:
		return "all of it" // nobody answered before this boot
	}
	was, errWas := so.Tracker.Recall(best)
	is, err := so.Tracker.Recall(&g)
	if errWas != nil || err != nil {
		return best.Unread
	}
	unread := spec.Unread(&was.Overlay.Items, &is.Overlay.Items)
	if best.Unread != "" {
		unread = append(strings.Split(best.Unread, ", "), unread...)
	}
	slices.Sort(unread)
	return strings.Join(slices.Compact(unread), ", ")
}

// Judging returns the change that is being judged, nil when there is none.
func (so *Soak) Judging() (*Judged, error) {
	record, err := gate.Load(so.path(paths.RunGates))
	if err != nil || record == nil || so.Tracker == nil {
		return nil, err
	}
	found, err := so.Running()
	if err != nil {
		return nil, err
	}
	if !record.Of(so.Root, found.Generation.Overlay) {
		return nil, nil
	}
	return &Judged{found, *record}, nil
}

// BeginGates has the change that was put in effect judged. The deadline of its boot ends here:
// it came up, and from now on the gates decide; with reach, whether it reaches the registry, too.
func (so *Soak) BeginGates(ctx context.Context, step decide.Step, g state.Generation, reach bool) error {
	if err := so.Owner.EndTrial(); err != nil { // it was reached, or confirmed
		return err
	}
	if err := so.Owner.Note(func(l *record.Live) { l.Applied, l.Stuck = &g, "" }); err != nil {
		return err
	}
	r := gate.Record{Root: so.Root, Overlay: g.Overlay, Began: gate.Seconds(so.Up()), Reach: reach}
	if err := r.Save(so.path(paths.RunGates)); err != nil {
		return err
	}
	so.Log.Record("judged", events.With("generation", g.Generation), events.With("epoch", g.Epoch), events.With("overlay", g.Overlay),
		events.Transition(step.Name))
	if err := uptime.EndDeadline(so.path(paths.RunJudged)); err != nil { // of what was judged before, maybe on another root
		return err
	}
	fault.Say(so.Log.Say, so.Bound(ctx)) // it is judged all the same
	return uptime.EndDeadline(so.path(paths.RunDeadline))
}

// EndGates forgets what was judged, and that anything else than what is current was in effect.
func (so *Soak) EndGates() error {
	if err := durable.Remove(so.path(paths.RunGates)); err != nil {
		return err
	}
	if l := so.Owner.Boot().Live; l.Applied != nil || l.Stuck != "" {
		if err := so.Owner.Note(func(l *record.Live) { l.Applied, l.Stuck = nil, "" }); err != nil {
			return err
		}
	}
	return uptime.EndDeadline(so.path(paths.RunDeadline))
}

// Verdict says whether a change did what it should. One that was rejected by an agent
// which was ended before it had acted stays so; one that the node goes on with all the same
// is good when its checks hold.
func (so *Soak) Verdict(s *state.State, j *Judged) gate.Verdict {
	if s.Staged != nil && s.Staged.Same(j.Found.Generation) && so.Owner.Boot().Live.Stuck == "" {
		why := ""
		switch {
		case j.Found.Generation.IsAhead():
			why = s.Staged.FailedAhead
		case s.Staged.Again == 0: // else a boot is to try it, as this one did
			why = s.Staged.Failed
		}
		if why != "" {
			return gate.Verdict{State: gate.Failed, Why: why}
		}
	}
	return j.Record.Judge(j.Checks())
}

// NextLook is how long it takes until a check is to be looked at.
func (so *Soak) NextLook(j *Judged) time.Duration {
	return j.Record.NextLook(j.Checks(), so.Up())
}

// Prober looks at checks as this node does.
func (so *Soak) Prober() gate.Prober {
	p := gate.Prober{Root: so.Dir, Log: so.path(paths.RunChecks), Runner: so.Runner, Now: func() int64 { return gate.Seconds(so.Up()) },
		Reach: so.Dial}
	p.Runner = cmp.Or[process.Runner](p.Runner, new(process.Group))
	if so.Systemd {
		p.Units = process.Manager{}
	}
	return p
}

// Compared notes what was decided of what is doubted, after it was compared with what ran before.
func (so *Soak) Compared(step decide.Step) error {
	absolved, why := step.Act == decide.Absolve, step.Why
	var g state.Generation
	did := "keeps it rejected"
	err := so.Owner.Commit(record.Change{Urgent: record.Verdict, State: func(s *state.State) {
		g = *s.Doubted
		if absolved {
			did = "does not hold it against the generation, and takes it again when the registry answers"
			s.Absolve()
		}
		s.Doubted = nil
	}})
	if err != nil {
		return err
	}
	so.Log.Record("compared", events.With("generation", g.Generation), events.With("overlay", g.Overlay), events.With("why", why),
		events.Transition(step.Name))
	so.Log.Note(g, nil, spec.Event{Event: spec.EventCompared, Transition: step.Name, Why: why, Did: did})
	so.Log.Say("generation %d: %s: %s", g.Generation, why, did)
	if !absolved {
		return nil
	}
	return so.Owner.SetSync(spec.SyncUnreachable, fmt.Sprintf("generation %d is taken again when the registry answers: %s", g.Generation, why))
}

// Afterwards judges the node by the overlay's checks after an operation disturbed it.
// It only reads what [LookAfter] has seen: the node's lock is held here.
type Afterwards struct {
	blank  gate.Record // of this root and overlay
	Checks []spec.HealthCheck
	up     func() time.Duration
}

// Afterwards returns what judges the node by the checks of what runs.
func (so *Soak) Afterwards(found *track.Found) Afterwards {
	return Afterwards{gate.Record{Root: so.Root + "@" + so.Kernel, Overlay: found.Generation.Overlay}, found.Overlay.Gates.Checks, so.Up}
}

// Noted returns the notes of one operation, nil where they are of another root or
// overlay.
func (a Afterwards) Noted(notes string) (*gate.Record, error) {
	r, err := gate.Load(notes)
	if err != nil || !r.Of(a.blank.Root, a.blank.Overlay) {
		return nil, err
	}
	return r, nil
}

// Judge says whether the node is well. What has no notes yet gets them.
func (a Afterwards) Judge(_ context.Context, notes string) (operation.Judgement, string) {
	r, err := a.Noted(notes)
	if err == nil && r == nil {
		r = &a.blank
		r.Began = gate.Seconds(a.up())
		err = r.Save(notes)
	}
	if err != nil {
		return operation.Judging, err.Error()
	}
	switch v := r.Judge(a.Checks); v.State {
	case gate.Passed:
		return operation.Well, ""
	case gate.Failed:
		return operation.Unwell, v.Why
	default:
		return operation.Judging, v.Why
	}
}

// Watched are the checks of an overlay that go on being looked at once it has proved
// itself. What they find degrades the node, and undoes nothing: that what ran before would
// do better is known of a change that has just been made, and of nothing else.
func Watched(o *spec.Overlay) []spec.HealthCheck {
	if o.Gates == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Gates.Checks), func(c spec.HealthCheck) bool { return !c.Watch })
}

// Watching returns what is known of the watched checks of what runs, on this root.
func (so *Soak) Watching(found *track.Found) (gate.Record, error) {
	g := found.Generation
	r, err := gate.Load(so.path(paths.RunWatched))
	if err == nil && r.Of(so.Root, g.Overlay) {
		return *r, nil
	}
	return gate.Record{Root: so.Root, Overlay: g.Overlay, Began: gate.Seconds(so.Up())}, err
}

// Unwell are the watched checks that did not hold when they were looked at last, by name.
func (so *Soak) Unwell(found *track.Found) (why map[string]string, err error) {
	checks := Watched(&found.Overlay)
	if len(checks) == 0 {
		return nil, nil
	}
	r, err := so.Watching(found)
	why = map[string]string{}
	for _, c := range checks {
		if p := r.Checks[c.Name]; p.Looked != 0 && p.Since == 0 {
			why[c.Name] = p.Why
		}
	}
	return why, err
}

// spared is how much later than it should a look at what is judged may come: the time that a
// boot has, too. The lock may be taken, and the machine be slow.
const spared = 15 * time.Minute

// Bound has systemd start the machine over where no agent looks at what is judged again: one
// that was killed and cannot start, as all memory is taken, judges nothing. Each look renews it;
// where nothing is judged it ends. A host that is attached, or that has no way back, would be
// started over for nothing, and caisson.deadline=0 turns this off as it does the deadline of a
// boot.
func (so *Soak) Bound(ctx context.Context) error {
	j, err := so.Judging()
	if err != nil {
		return err
	}
	s, err := so.Owner.State()
	if err != nil {
		return err
	}
	file := so.path(paths.RunJudged)
	if j == nil || so.Owner.Boot().Mode == spec.ModeAttached || s.Back(j.Found.Generation) == nil ||
		slices.Contains(j.Found.Overlay.KernelArgs, "caisson.deadline=0") {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(so.timer(ctx, "stop"), uptime.EndDeadline(file))
	}
	within := spared + so.NextLook(j)
	for _, c := range j.Checks() {
		within += time.Duration(c.Timeout) * time.Second
	}
	first, err := uptime.RenewDeadline(file, so.Up(), within)
	if err != nil || !first {
		return err
	}
	if err := so.timer(ctx, "start"); err != nil {
		// the next look tries again
		return errors.Join(fmt.Errorf("nothing outside of the agent bounds how long this generation is judged: %w", err), uptime.EndDeadline(file))
	}
	return nil
}

func (so *Soak) timer(ctx context.Context, job string) error {
	if !so.Systemd {
		return nil
	}
	return process.Manager{}.Do(ctx, job, paths.JudgedTimer)
}
