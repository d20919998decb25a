// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/nextroot"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/deadline"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// How long a soft-reboot may take to begin, before it is a reboot.
const (
	stageTime = time.Minute     // for what is not staged yet; as long as the loader gives a newer layer
	StackTime = 5 * time.Minute // for the next root to be verified and made
)

// Reboot starts this node over, by the least disturbing way to what waits: a
// soft-reboot where that is enough, or else a reboot. It says which way that is, and
// returns when it is begun.
func (d *Destination) Reboot(ctx context.Context) (class, why string, err error) {
	if err := d.stageSoon(ctx); err != nil {
		d.Log.Say("%v", err) // what follows says that it is not there
	}
	next, class, why, err := d.Next(ctx)
	if err != nil {
		class, why = spec.ClassReboot, err.Error()
	}
	if class == spec.ClassSoftReboot {
		err := d.softReboot(ctx, next)
		if err == nil {
			return class, why, nil
		}
		class, why = spec.ClassReboot, "no soft-reboot: "+err.Error()
	}
	d.Log.Say("a reboot: %s", why)
	return class, why, d.Machine.Reboot(ctx)
}

// softReboot goes to the next root. The attempt is counted before, as the loader counts
// its own: where nothing comes up, the machine starts over and the loader decides.
func (d *Destination) softReboot(ctx context.Context, next *nextroot.Next) (err error) {
	if err := d.stackNext(ctx); err != nil {
		return err
	}
	g := next.Pair.Generation
	was, err := d.Owner.State()
	if err != nil {
		return errors.Join(err, next.Clear())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Owner.Commit(record.Change{State: func(s *state.State) { *s = *was }}),
				deadline.End(d.path(paths.RunDeadline)), next.Clear())
		}
	}()
	if next.Unproven {
		if err := d.Owner.Commit(record.Change{State: func(s *state.State) { s.Staged.Attempts++ }}); err != nil {
			return err
		}
		if err := deadline.Begin(d.path(paths.RunDeadline), d.Machine.Up()); err != nil {
			return err
		}
	}
	if err := d.Lift(); err != nil { // the next root's own init sets these parameters, too
		return err
	}
	d.Log.Note(g, nil, spec.Event{Event: spec.EventEntered, Why: "by a soft-reboot"})
	d.Log.Record("soft-reboot", events.With("generation", g.Generation), events.With("layer", g.Layer))
	d.Log.Say("a soft-reboot to generation %d, layer %s", g.Generation, g.Layer)
	ctx = context.WithoutCancel(ctx) // what is begun here ends this agent, too: that must not count as its failure
	return d.Machine.SoftReboot(ctx)
}

// stackNext has a service make the next root.
func (d *Destination) stackNext(ctx context.Context) error {
	if d.Runner == nil {
		return errors.New("systemd does not run here")
	}
	log := d.path(paths.Run + "/swap.log")
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, StackTime+time.Minute)
	defer cancel()
	id, err := d.Runner.Start(ctx, process.Command{Name: "caisson-swap", Args: []string{d.path(paths.Agent), paths.StackNext},
		Env: []string{"PATH=/usr/sbin:/usr/bin"}, Dir: "/", Log: log, Limit: StackTime})
	if err == nil {
		err = d.Runner.Wait(ctx, id)
	}
	if err != nil {
		said, _ := os.ReadFile(log) // it says why, where it came so far
		return fmt.Errorf("make the next root: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}
