// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// kmsg is the kernel's log.
const kmsg = events.Kmsg

// log is where records of this node go.
func (n *Node) log() events.Log { return events.Log{Root: n.o.Root, By: n.o.By, Say: n.say} }

// box is the node's black box.
func (n *Node) box() blackbox.Box { return blackbox.At(n.folder.Path(blackbox.Name)) }

// record writes down what was done to this node, under the generation in effect where
// the fields name none.
func (n *Node) record(event string, fields ...events.Field) {
	if g := n.inEffect(); g > 0 && !slices.ContainsFunc(fields, func(f events.Field) bool { return f.Name == "generation" }) {
		fields = append(fields, events.With("generation", g))
	}
	n.log().Record(event, fields...)
}

// recordStep is record for what comes of a decision, by the name of its transition.
func (n *Node) recordStep(event string, fields ...events.Field) {
	if n.decided != "" {
		fields = append(fields, events.With("transition", n.decided))
	}
	n.record(event, fields...)
}

// inEffect is the generation that this node has accepted and runs, 0 where that is not
// known.
func (n *Node) inEffect() uint64 {
	if n.boot == nil || n.folder == nil {
		return 0
	}
	if s, err := n.folder.Load(); err == nil && s.Best() != nil { // a record is made without it, too
		return s.Best().Generation
	}
	return n.boot.Generation.Generation
}

// recordChanges writes a record of each change that a run made.
func (n *Node) recordChanges(result items.Result, generation uint64, why string) {
	if why == whyDrift {
		metrics.CountCorrections(&n.boot.Live.Counts, result.Changes, n.last().Drift)
	}
	n.log().Changes(result.Changes, generation, why)
}

// setSync sets the sync axis and notes since when it is so.
func (n *Node) setSync(sync spec.Sync, detail string) {
	if n.boot.Sync != sync || n.boot.Live.SyncSince == 0 {
		n.boot.Live.SyncSince = time.Now().Unix()
	}
	n.boot.Sync, n.boot.SyncDetail = sync, detail
}

// note puts an event into the black box, once a boot. That it could not be noted is said,
// and changes nothing else.
func (n *Node) note(g state.Generation, err error, e spec.Event) {
	if n.lock == nil {
		return // only looking
	}
	if err != nil {
		e = blackbox.Blame(e, err)
		if item, key := items.Culprit(err); item != "" {
			e.Item, e.Key = item, key
		}
	}
	if err := events.Note(n.box(), n.scopes.Kernel, g, e); err != nil {
		n.say("%v", err)
	}
}

// noteUp notes once that this boot came up, and as what.
func (n *Node) noteUp(st *spec.Status, g state.Generation) {
	if n.boot.Live.Up {
		return
	}
	n.boot.Live.Up = true
	e := spec.Event{Event: spec.EventUp, Why: "health " + string(st.Health)}
	if detail := say.Worst(st); detail != "" {
		e.Why += ": " + detail
	}
	n.note(g, nil, e)
}

// NoteDeadline notes in the black box that the boot of a new generation is ended.
func NoteDeadline(ctx context.Context, root string) error {
	id, err := kernelID()
	if err != nil {
		return err
	}
	return events.Deadline(ctx, root, id)
}
