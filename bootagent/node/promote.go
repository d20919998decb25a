// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// keepGood makes a generation the current one.
func (n *Node) keepGood(g state.Generation, why string) error {
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	fields := []events.Field{events.With("generation", g.Generation), events.With("epoch", g.Epoch), events.With("overlay", g.Overlay), events.With("why", why)}
	if g.IsAhead() {
		fields = append(fields, events.With("on", g.Layer), events.With("waits", g.Waits))
	}
	n.recordStep("promoted", fields...)
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
		n.say("clean up: %v", err)
	}
}

// signed returns the scripts of every overlay that is kept and verified.
func (n *Node) signed() []spec.Exec {
	if n.follower == nil {
		return nil
	}
	kept, err := n.follower.Kept()
	if err != nil {
		n.say("%v", err)
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
		n.say("%v", err)
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
