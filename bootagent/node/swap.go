// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/swap"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// How long a soft-reboot may take to begin, before it is a reboot.
const (
	stageTime = time.Minute     // for what is not staged yet; as long as the loader gives a newer layer
	stackTime = 5 * time.Minute // for the next root to be verified and made
)

// Reboot starts this node over, by the least disturbing way to what waits: a
// soft-reboot where that is enough, or else a reboot. It says which way that is, and
// returns when it is begun.
func (n *Node) Reboot(ctx context.Context) (class, why string, err error) {
	if err := n.stageSoon(ctx); err != nil {
		n.say("%v", err) // what follows says that it is not there
	}
	next, class, why, err := n.next(ctx)
	if err != nil {
		class, why = spec.ClassReboot, err.Error()
	}
	if class == spec.ClassSoftReboot {
		err := n.softReboot(ctx, next)
		if err == nil {
			return class, why, nil
		}
		class, why = spec.ClassReboot, "no soft-reboot: "+err.Error()
	}
	n.say("a reboot: %s", why)
	return class, why, n.reboot(ctx)
}

func (n *Node) stageSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stageTime)
	defer cancel()
	return n.Stage(ctx)
}

// next is destination for a node that cannot fetch any more: where a soft-reboot leads to
// it, its images are here.
func (n *Node) next(ctx context.Context) (next *swap.Next, class, why string, err error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, "", "", err
	}
	next, class, why, err = n.destination(ctx, s, nil)
	if err != nil || next == nil || len(next.Missing) == 0 || n.inMemory() && class != spec.ClassSoftReboot {
		return next, class, why, err
	}
	return nil, spec.ClassReboot, fmt.Sprintf("its layer is not staged: %s is not in the store", next.Missing[0].Digest), nil
}

// heads returns the generation that a start of this node leads to, nil where none is known.
func (n *Node) heads(s *state.State) *state.Generation {
	if g := n.takes(s); g != nil {
		return g
	}
	return s.Best()
}

// destination is the root that a node with a state goes to when it is started over, nil where
// that is of the layer that runs, and how it gets there once it has its images. The
// description of its layer is asked of a source where it is not here; nil asks nobody.
func (n *Node) destination(ctx context.Context, s *state.State, from oci.Source) (next *swap.Next, class, why string, err error) {
	if n.boot.Mode == spec.ModeAttached || n.follower == nil {
		return nil, spec.ClassReboot, "caisson did not boot this host", nil
	}
	g := n.heads(s)
	if g == nil || g.Layer == n.boot.Generation.Layer {
		return nil, spec.ClassReboot, "no other layer waits", nil
	}
	if s.Trial.Pending() {
		return nil, spec.ClassReboot, "a change waits to be confirmed", nil
	}
	if others, err := n.othersWait(); err != nil || others != "" {
		return nil, spec.ClassReboot, "not only a layer waits: " + others, err
	}
	running, err := n.running()
	if err != nil {
		return nil, "", "", err
	}
	found, err := n.follower.Return(g) // not what the fleet has rejected since it was accepted
	if err != nil {
		return nil, "", "", err
	}
	store, err := n.store()
	if err != nil {
		return nil, "", "", err
	}
	layer, err := stage.Stager{Store: store, From: from, Talk: stackTime, Say: n.say}.Describe(ctx, g.Layer)
	if err != nil {
		return nil, "", "", fmt.Errorf("its layer is not staged: %w", err)
	}
	if err := trust.ForMachine(layer, n.follower.Bootstrap, runtime.GOARCH); err != nil {
		return nil, "", "", err
	}
	next = &swap.Next{Pair: swap.Pair{Generation: *g, Overlay: &found.Overlay, Layer: &layer}, Boot: n.boot, State: n.folder, Store: store, Unproven: s.Staged == g, Say: n.say}
	if uuids := n.follower.Identity.UUIDs; len(uuids) > 0 {
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
	class, why = swap.Class(n.boot, &running.Overlay, to)
	if class == spec.ClassSoftReboot && n.inMemory() {
		class, why, err = n.fitsMemory(next, class, why)
	}
	return next, class, why, err
}

// sayMove says how this node gets to another layer that waits and is here, in the words of
// the plan; "" where that is not known. It reads the disk alone.
func (n *Node) sayMove() string {
	next, class, why, err := n.next(context.Background())
	if err != nil || next == nil {
		return "" // the verb that starts the node over says why
	}
	return class + ": " + why
}

// sayWay says how this node gets to what waits, and why it waits where that is not only
// that it is another layer.
func (n *Node) sayWay(why string) string {
	switch move := n.sayMove(); {
	case move == "":
		return why
	case why == spec.EffectOf(spec.PartLayer).Why:
		return move
	default:
		return move + "; " + why
	}
}

// othersWait returns what else wants this machine to be started over; a new kernel on the
// disk of somebody's is not to be had by a soft-reboot.
func (n *Node) othersWait() (string, error) {
	data, err := os.ReadFile(n.path(paths.RebootReasons))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasPrefix(line, []byte(rebootMark)) {
			return strings.TrimSpace(string(line)), nil
		}
	}
	return "", nil
}

// StackNext verifies the images of the next root and makes it. It is the act of a
// service of its own: what makes a root needs more than the agent's service may do, and
// overlayfs asks later what that had then. Who asked for it holds the lock.
func StackNext(ctx context.Context, o Options) error {
	n, err := Read(ctx, o, nil)
	if err != nil {
		return err
	}
	defer n.Close() // only read
	next, class, why, err := n.next(ctx)
	switch {
	case err != nil:
		return err
	case class != spec.ClassSoftReboot:
		return fmt.Errorf("no soft-reboot: %s: %s", class, why)
	}
	ctx, cancel := context.WithTimeout(ctx, stackTime)
	defer cancel()
	if err := next.Check(ctx, stage.Stager{Store: next.Store, Talk: stackTime, Say: o.Say}); err != nil {
		return err
	}
	return next.Stack()
}

// softReboot goes to the next root. The attempt is counted before, as the loader counts
// its own: where nothing comes up, the machine starts over and the loader decides.
func (n *Node) softReboot(ctx context.Context, next *swap.Next) (err error) {
	if err := n.stackNext(ctx); err != nil {
		return err
	}
	g := next.Pair.Generation
	s, err := n.folder.Load()
	if err != nil {
		return errors.Join(err, next.Clear())
	}
	was := s.Clone()
	defer func() {
		if err != nil {
			err = errors.Join(err, n.folder.Save(was), durable.Remove(n.path(paths.RunDeadline)), next.Clear())
		}
	}()
	if next.Unproven {
		s.Staged.Attempts++
		if err := n.folder.Save(s); err != nil {
			return err
		}
		if err := durable.WriteFile(n.path(paths.RunDeadline), nil, 0o600); err != nil {
			return err
		}
	}
	if err := n.Lift(); err != nil { // the next root's own init sets these parameters, too
		return err
	}
	n.note(g, nil, spec.Event{Event: spec.EventEntered, Why: "by a soft-reboot"})
	n.record("soft-reboot", events.With("generation", g.Generation), events.With("layer", g.Layer))
	n.say("a soft-reboot to generation %d, layer %s", g.Generation, g.Layer)
	ctx = context.WithoutCancel(ctx) // what is begun here ends this agent, too: that must not count as its failure
	if n.o.SoftReboot != nil {
		return n.o.SoftReboot(ctx)
	}
	return process.Manager{}.SoftReboot(ctx)
}

// stackNext has a service make the next root.
func (n *Node) stackNext(ctx context.Context) error {
	runner := n.runner()
	if runner == nil {
		return errors.New("systemd does not run here")
	}
	log := n.path(paths.Run + "/swap.log")
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stackTime+time.Minute)
	defer cancel()
	id, err := runner.Start(ctx, process.Command{Name: "caisson-swap", Args: []string{n.path(paths.Agent), paths.StackNext}, Env: []string{"PATH=/usr/sbin:/usr/bin"}, Dir: "/", Log: log, Limit: stackTime})
	if err == nil {
		err = runner.Wait(ctx, id)
	}
	if err != nil {
		said, _ := os.ReadFile(log) // it says why, where it came so far
		return fmt.Errorf("make the next root: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}
