// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/swap"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// inMemory reports whether this node has its images in memory, as one without a state
// disk. They outlive a soft-reboot, and no other.
func (n *Node) inMemory() bool { return n.boot.Mode != spec.ModeAttached && n.boot.Disk == "" }

// fitsMemory is the class of a soft-reboot into a root some of whose images have yet to be
// brought into memory.
func (n *Node) fitsMemory(next *swap.Next, class, why string) (string, string, error) {
	if len(next.Missing) == 0 {
		return class, why, nil
	}
	memory, err := swap.ReadMemory(n.path("/proc/meminfo"))
	if err != nil {
		return "", "", err
	}
	if refused := memory.Refuses(next.Missing); refused != "" {
		return spec.ClassReboot, refused, nil
	}
	return class, why, nil
}

// stageInMemory brings the images of the root that this node goes to into memory, where a
// soft-reboot leads to it: those that the running one has are there. When that fails, or
// the root is to be had by a reboot only, what was brought is given back.
func (n *Node) stageInMemory(ctx context.Context, s *state.State) error {
	if g := n.heads(s); g == nil || g.Layer == n.boot.Generation.Layer {
		return nil
	}
	release, err := stage.Begin(n.path(paths.RunStaging)) // nothing is freed meanwhile
	if err != nil {
		return err
	}
	defer release()
	next, class, _, err := n.destination(ctx, s, n.follower.Source)
	if err != nil || next == nil || class == spec.ClassSoftReboot && len(next.Missing) == 0 {
		return err
	}
	var bytes spec.Bytes
	if class == spec.ClassSoftReboot {
		to := stage.Stager{Bytes: &bytes, Store: next.Store, From: n.follower.Source, Kept: []string{n.stacked()}, Talk: 10 * time.Minute, Say: n.say}
		if err = to.Missing(ctx, stage.Images(*next.Pair.Layer)...); err == nil {
			return n.noteBytes(next.Pair.Generation.Layer, bytes)
		}
		err = fmt.Errorf("stage generation %d: %w", next.Pair.Generation.Generation, err)
	}
	return errors.Join(err, n.giveUp(s, next))
}

// giveUp frees the memory of images that only a root has which is not gone to.
func (n *Node) giveUp(s *state.State, next *swap.Next) error {
	others := []*state.Generation{&n.boot.Generation}
	if s.Current != nil && s.Current.Layer != next.Pair.Generation.Layer {
		others = append(others, s.Current)
	}
	keep, err := needed(next.Store, n.stackedOnly(), others)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range next.Pair.Layer.Images {
		if !keep[i.Digest] {
			errs = append(errs, next.Store.Drop(i.Digest))
		}
	}
	return errors.Join(errs...)
}

// stackedOnly is the layer that this root is made of.
func (n *Node) stackedOnly() []*state.Generation { return []*state.Generation{{Layer: n.stacked()}} }

// worth are the generations whose layers are worth memory beside that of this root: the one
// that a change which does not prove itself is taken back to, and the one that waits.
func (n *Node) worth(s *state.State) []*state.Generation {
	list := []*state.Generation{s.Current}
	if n.follower == nil {
		return list
	}
	return append(list, n.heads(s))
}

// free gives back the memory of layers that nobody goes to any more.
func (n *Node) free() {
	if staging, _ := stage.Runs(n.path(paths.RunStaging)); staging || !n.inMemory() || n.follower == nil {
		return
	}
	s, err := n.folder.Load()
	if err == nil {
		err = n.collect(s)
	}
	if err != nil {
		n.say("clean up: %v", err)
	}
}
