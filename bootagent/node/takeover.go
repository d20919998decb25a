// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/takeover"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// takeOver makes what Divingbell recorded on an attached host the journal's
// originals, before the first run changes anything. As long as the records are
// there it does so again, since a reboot in between ends what the kernel held. A
// node that is only looked at supposes them.
func (n *Node) takeOver() error {
	if n.boot.Mode != spec.ModeAttached || n.taken != nil {
		return nil
	}
	found, err := takeover.Look(n.o.Root)
	if err != nil || found == nil {
		return err
	}
	if n.lock != nil {
		if err := takeover.Active(n.path("/proc")); err != nil {
			return err
		}
	}
	entries, adoptErr := items.Adopt(n.items(&track.Found{Overlay: spec.Overlay{Items: found.Originals}}))
	n.taken = found
	entries = slices.DeleteFunc(entries, func(e item.Entry) bool {
		return slices.ContainsFunc(n.journal.Entries(e.Item), func(k item.Entry) bool { return k.Key == e.Key })
	})
	if n.lock == nil {
		n.journal.Suppose(entries...)
		return nil
	}
	if err := n.journal.Record(entries...); err != nil {
		return fmt.Errorf("keep the originals that Divingbell recorded: %w", err)
	}
	for _, e := range entries {
		n.record("taken-over", events.With("item", e.Item), events.With("key", e.Key), events.With("original", string(e.Prior)))
	}
	for _, doubt := range found.Doubts {
		n.say("not taken over: %s", doubt)
	}
	if adoptErr != nil {
		n.say("not taken over: %v", adoptErr)
	}
	return nil
}

// past returns what Divingbell knew of scripts; nil where it left nothing.
func (n *Node) past() exec.Past {
	if n.taken == nil {
		return nil
	}
	return n.taken
}

// leaving are the files that retire takes away.
func (n *Node) leaving() []string {
	if n.taken == nil {
		return nil
	}
	return n.taken.Settings()
}

// retire takes away what Divingbell left to be set at every boot, once a run has
// put caisson's settings and the originals in place. A script that fails is no
// reason to wait.
func (n *Node) retire(ctx context.Context, result items.Result) error {
	if n.taken == nil || n.lock == nil || ctx.Err() != nil {
		return nil
	}
	if n.boot.Live.Without != nil {
		n.say("what Divingbell left stays until a generation is in effect whole")
		return nil
	}
	for _, i := range result.Items {
		if i.Name != exec.Name && i.State == spec.ItemDegraded {
			n.say("what Divingbell left stays until %s is in order", i.Name)
			return nil
		}
	}
	found := n.taken
	n.taken = nil
	kept, err := found.Retire()
	if err != nil {
		return err
	}
	n.say("taken over from Divingbell: %s; its records are in %s", found.Summary(), kept)
	for _, what := range found.Left {
		n.say("left as Divingbell made them, since they need a layer: %s", what)
	}
	if n.runner() == nil {
		return nil // no systemd has read the units
	}
	return process.Reload(ctx)
}

// announce says at enrollment what the first run will find.
func (n *Node) announce() error {
	found, err := takeover.Look(n.o.Root)
	if err != nil || found == nil {
		return err
	}
	n.say("Divingbell configured this host: apply takes over %s", found.Summary())
	var active *takeover.ActiveError
	if err := takeover.Active(n.path("/proc")); errors.As(err, &active) {
		n.say("before that, %v: %s", active, active.Hint())
	}
	return nil
}
