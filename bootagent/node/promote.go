// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"

	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// evidence is what speaks for a generation.
type evidence struct {
	generation state.Generation
	run        *items.Result // the run that put it in effect; nil where the node ran the same before
	gates      *spec.Gates   // what it has to pass yet, nil where that is nothing
}

// mayAct answers the question "may I act now" for every change of this node, and
// says why not. Windows, preconditions and slots belong here, too.
func (n *Node) mayAct(found *track.Found) (ok bool, why string, err error) {
	if !n.begun() {
		return true, "", nil
	}
	p, err := n.pause(found)
	if err != nil || p == nil {
		return err == nil, "", err
	}
	return false, say.Pause(p), nil
}

// promote takes note of a generation that is in effect. It counts as good, which ends
// the deadline of its boot, unless gates are to decide that; one that was good before
// has no gates to pass.
func (n *Node) promote(e evidence) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	record, err := gate.Load(n.path(paths.RunGates))
	if err != nil {
		return err
	}
	staged := s.Staged != nil && s.Staged.Same(e.generation)
	switch {
	case record.Of(n.scopes.Root, e.generation.Overlay): // they go on, also for a newer generation of the same
		if a := n.boot.Live.Applied; a == nil || !a.Same(e.generation) {
			n.boot.Live.Applied = &e.generation
			return n.remember()
		}
		return nil
	case !staged, s.Staged.Failed != "" && !e.generation.IsAhead(): // what was rejected runs where nothing else could be booted
		return n.endDeadline()
	case s.Ahead != nil && s.Ahead.Same(e.generation) && s.Ahead.Pair(e.generation): // it stays staged for its own layer
		return n.endDeadline()
	case e.run == nil && e.gates != nil && (s.Best() == nil || s.Best().Overlay != e.generation.Overlay):
		return nil // nothing of it was applied yet
	case e.run == nil:
		return n.pass(e.generation, "it runs already")
	case e.gates == nil:
		return n.pass(e.generation, "applied: "+string(e.run.Health))
	}
	return n.beginGates(e.generation)
}

// keepGood makes a generation the current one.
func (n *Node) keepGood(g state.Generation, why string) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	fields := []field{{"generation", g.Generation}, {"epoch", g.Epoch}, {"overlay", g.Overlay}, {"why", why}}
	if g.IsAhead() {
		fields = append(fields, field{"on", g.Layer}, field{"waits", g.Waits})
	}
	n.record("promoted", fields...)
	s.Prove(g, n.layersHere(s)...)
	if err := n.folder.Save(s); err != nil {
		return err
	}
	n.tidy(s)
	return nil
}

// tidy deletes what no state names any more. What is left over costs room only.
func (n *Node) tidy(s *state.State) {
	if err := errors.Join(n.folder.CollectOverlays(s, append(n.reverting(), n.serving()...)...), n.collect(s)); err != nil {
		n.o.Say("clean up: %v", err)
	}
}

// signed returns the scripts of every overlay that is kept and verified.
func (n *Node) signed() []spec.Exec {
	if n.follower == nil {
		return nil
	}
	kept, err := n.follower.Kept()
	if err != nil {
		n.o.Say("%v", err)
	}
	var scripts []spec.Exec
	for _, a := range kept {
		scripts = append(scripts, a.Overlay.Items.Exec...)
	}
	return scripts
}

// reverting returns the digests of the overlays whose scripts are still to be
// taken back: without their signature no revert script runs.
func (n *Node) reverting() []string {
	pending := map[string]bool{}
	for _, e := range n.journal.Entries(exec.Name) {
		pending[e.Key] = true
	}
	if len(pending) == 0 || n.follower == nil {
		return nil
	}
	kept, err := n.follower.Kept()
	if err != nil {
		n.o.Say("%v", err)
	}
	var digests []string
	for _, a := range kept {
		for _, w := range a.Overlay.Items.Exec {
			if key := exec.Key(w); w.Revert != "" && pending[key] {
				digests = append(digests, a.Digest)
				delete(pending, key) // the newest overlay that has it is enough
			}
		}
	}
	return digests
}
