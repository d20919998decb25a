// SPDX-License-Identifier: Apache-2.0

// Package destination says where a node goes when it is started over, and by which way: a
// soft-reboot into a root that is stacked beforehand, or a reboot. It brings what that needs
// to the state disk or into memory, frees what no way needs any more, and sets out.
//
// When that is done is package operate's and the operator's to say.
package destination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Destination is that of an open node.
type Destination struct {
	Dir      string // prefix of every path, for tests
	Retries  bool   // also what was left out
	Owner    *record.Owner
	Folder   *state.Folder
	Tracker  *track.Tracker // nil where no key is trusted
	Store    func() (*layers.Store, error)
	Root     *stacked.Root
	Services *stacked.Services
	Effect   *effect.Effect
	Machine  Machine
	Runner   process.Runner // makes the next root; nil where systemd does not run
	Lift     func() error   // has the kernel protect nothing any more
	Log      effect.Log
}

// Machine is started over.
type Machine interface {
	Up() time.Duration // since its kernel started
	Reboot(ctx context.Context) error
	SoftReboot(ctx context.Context, replug bool) error // see [process.Manager]
}

func (d *Destination) path(name string) string { return filepath.Join(d.Dir, name) }

// Rejected says why a generation must not be put in effect here, "" where it may. The
// attempts of the boot that is running now do not count against it.
func (d *Destination) Rejected(g state.Generation) string {
	begun := g.Attempts
	if g.Pair(d.Owner.Boot().Generation) {
		begun = 0
	}
	return decide.Refused(g, begun, time.Now().Unix())
}

// RejectedText says for people that a generation is rejected, and until when.
func RejectedText(g state.Generation, why string) string {
	if g.IsAhead() {
		return fmt.Sprintf("generation %d waits for a reboot into its layer: on the one that runs it failed: %s", g.Generation, why)
	}
	if g.Again != 0 {
		return fmt.Sprintf("generation %d was taken back: %s; it is tried again at %s, or by --retry", g.Generation, why,
			time.Unix(g.Again, 0).UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("generation %d is rejected on this node: %s; --retry tries it again", g.Generation, why)
}

// Awaited is a generation that a reboot is waited for, and what of it needs one.
type Awaited struct {
	Found *track.Found
	Why   string
}

// Candidate returns the generation that the next boot is to try before what ran well, nil where
// there is none: where nothing is staged, it was rejected, or the node is to keep what it has.
func (d *Destination) Candidate(s *state.State) *state.Generation {
	if d.Tracker == nil {
		return nil
	}
	if g := d.Tracker.Candidate(s); g != nil && d.Rejected(*g) == "" {
		return g
	}
	return nil
}

// Awaited returns what a reboot of a node that runs something is waited for, nil where
// nothing is.
func (d *Destination) Awaited(running *track.Found) (*Awaited, error) {
	now, err := d.Owner.Read()
	if err != nil || now.Boot.Mode == spec.ModeAttached {
		return nil, err
	}
	g := d.Candidate(now.State)
	if g == nil || running.Generation.Pair(*g) {
		return nil, nil // what is in effect has to prove itself
	}
	staged, err := d.Tracker.Recall(g)
	if err != nil {
		return nil, err
	}
	live, why := d.Extent(running, staged)
	if live {
		return nil, nil // it failed, and is tried again
	}
	return &Awaited{staged, why}, nil
}

func (d *Destination) stageSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stageTime)
	defer cancel()
	return d.Stage(ctx)
}

// Next is destination for a node that cannot fetch any more: where a soft-reboot leads to
// it, its images are here.
func (d *Destination) Next(ctx context.Context) (next *root.Next, class, why string, err error) {
	now, err := d.Owner.Read()
	if err != nil {
		return nil, "", "", err
	}
	next, class, why, err = d.Destination(ctx, now.State, nil)
	if err != nil || next == nil || len(next.Missing) == 0 || now.Boot.InMemory() && class != spec.ClassSoftReboot {
		return next, class, why, err
	}
	return nil, spec.ClassReboot, fmt.Sprintf("its layer is not staged: %s is not in the store", next.Missing[0].Digest), nil
}

// nextBoot returns the generation that the next boot runs, nil where none is known.
func (d *Destination) nextBoot(s *state.State) *state.Generation {
	if g := d.Candidate(s); g != nil {
		return g
	}
	return s.Best()
}

const noLayer = "no other layer waits"

// Destination is the root that a node with a state goes to when it is started over, nil where
// that is of the layer that runs, and how it gets there once it has its images. The
// description of its layer is asked of a source where it is not here; nil asks nobody.
func (d *Destination) Destination(ctx context.Context, s *state.State, from oci.Source) (next *root.Next, class,
	why string, err error) {
	boot := d.Owner.Boot()
	if boot.Mode == spec.ModeAttached || d.Tracker == nil {
		return nil, spec.ClassReboot, "caisson did not boot this host", nil
	}
	g := d.nextBoot(s)
	if g == nil || g.Layer == boot.Generation.Layer {
		return nil, spec.ClassReboot, noLayer, nil
	}
	if s.Trial.Pending() {
		return nil, spec.ClassReboot, "a change waits to be confirmed", nil
	}
	if others, err := d.othersWait(); err != nil || others != "" {
		return nil, spec.ClassReboot, "not only a layer waits: " + others, err
	}
	running, err := d.Effect.Running()
	if err != nil {
		return nil, "", "", err
	}
	found, err := d.Tracker.Return(g) // not what the fleet has rejected since it was accepted
	if err != nil {
		return nil, "", "", err
	}
	store, err := d.Store()
	if err != nil {
		return nil, "", "", err
	}
	layer, err := stage.Stager{Store: store, From: from, Talk: StackTime, Say: d.Log.Say}.Describe(ctx, g.Layer)
	if err != nil {
		return nil, "", "", fmt.Errorf("its layer is not staged: %w", err)
	}
	if err := trust.ForMachine(layer, d.Tracker.Bootstrap, runtime.GOARCH); err != nil {
		return nil, "", "", err
	}
	next = &root.Next{Pair: root.Pair{Generation: *g, Overlay: &found.Overlay, Layer: &layer}, Boot: boot, State: d.Folder,
		Store: store, Unproven: s.Staged == g, Say: d.Log.Say}
	if uuids := d.Tracker.Identity.UUIDs; len(uuids) > 0 {
		next.UUID = uuids[0]
	}
	for _, i := range layer.Images {
		if !store.Has(i.Digest, i.Size) && !slices.Contains(next.Missing, i.Blob) {
			next.Missing = append(next.Missing, i.Blob)
		}
	}
	to := next.Pair
	if !next.Unproven {
		to.Generation.Attempts = 0 // it came up
	}
	class, why = root.Class(boot, &running.Overlay, to)
	if class == spec.ClassSoftReboot && boot.InMemory() {
		class, why, err = d.fitsMemory(next, class, why)
	}
	return next, class, why, err
}

// How long a soft-reboot may take to begin, before it is a reboot.
const (
	stageTime = time.Minute     // for what is not staged yet; as long as the loader gives a newer layer
	StackTime = 5 * time.Minute // for the next root to be verified and made
)

// Reboot starts this node over, by the least disturbing way to what waits: a
// soft-reboot where that is enough, or else a reboot. It says which way that is, and
// returns when it is begun.
func (d *Destination) Reboot(ctx context.Context) (class, why string, err error) {
	fault.Say(d.Log.Say, d.stageSoon(ctx)) // what follows says that it is not there
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
func (d *Destination) softReboot(ctx context.Context, next *root.Next) (err error) {
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
				uptime.EndDeadline(d.path(paths.RunDeadline)), next.Clear())
		}
	}()
	if next.Unproven {
		if err := d.Owner.Commit(record.Change{State: func(s *state.State) { s.Staged.Attempts++ }}); err != nil {
			return err
		}
		if err := uptime.BeginDeadline(d.path(paths.RunDeadline), d.Machine.Up()); err != nil {
			return err
		}
	}
	if err := d.Lift(); err != nil { // the next root's own init sets these parameters, too
		return err
	}
	d.Log.Note(g, nil, spec.Event{Event: spec.EventEntered, Why: "by a soft-reboot"})
	d.Log.Record("soft-reboot", events.With("generation", g.Generation), events.With("layer", g.Layer))
	d.Log.Say("a soft-reboot to generation %d, layer %s", g.Generation, g.Layer)
	ctx = context.WithoutCancel(ctx)                 // what is begun here ends this agent, too: that must not count as its failure
	return d.Machine.SoftReboot(ctx, !next.Unproven) // what is left behind may have taken a driver away
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
		err = errors.Join(d.Runner.Wait(ctx, id), d.Runner.End(id))
	}
	if err != nil {
		said, _ := os.ReadFile(log) // it says why, where it came so far
		return fmt.Errorf("make the next root: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}
