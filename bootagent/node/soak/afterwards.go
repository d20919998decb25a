// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

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
