// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/metrics"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Why a change was made that no operator and no new generation asked for.
const (
	WhyBoot   = "boot"   // the root has just come up: what it lacks is set
	WhyAgain  = "again"  // all was put back before
	WhyDrift  = "drift"  // it was right before
	WhyWaited = "waited" // what it was deferred for has come: a module, a device, a path, a window
)

// Kmsg is the kernel's log.
const Kmsg = events.Kmsg

// log is where records of this node go.
func (n *Session) log() events.Log {
	return events.Log{Root: n.Options.Root, By: n.Options.By, Say: n.Say}
}

// Box is the node's black box.
func (n *Session) Box() blackbox.Box { return blackbox.At(n.Folder.Path(blackbox.Name)) }

// Record writes down what was done to this node, under the generation in effect where
// the fields name none.
func (n *Session) Record(event string, fields ...events.Field) {
	if g := n.inEffect(); g > 0 && !slices.ContainsFunc(fields, func(f events.Field) bool { return f.Name == "generation" }) {
		fields = append(fields, events.With("generation", g))
	}
	n.log().Record(event, fields...)
}

// RecordStep is record for what comes of a decision, by the name of its transition.
func (n *Session) RecordStep(event string, fields ...events.Field) {
	if n.Transition != "" {
		fields = append(fields, events.With("transition", n.Transition))
	}
	n.Record(event, fields...)
}

// inEffect is the generation that this node has accepted and runs, 0 where that is not
// known.
func (n *Session) inEffect() uint64 {
	if n.Owner == nil {
		return 0
	}
	if s, err := n.Owner.State(); err == nil && s.Best() != nil { // a record is made without it, too
		return s.Best().Generation
	}
	return n.Boot.Generation.Generation
}

// RecordChanges writes a record of each change that a run made.
func (n *Session) RecordChanges(result items.Result, generation uint64, why string) {
	changes := result.Changes
	if why == WhyDrift {
		last := n.Last().Drift
		var waited, drifted []spec.Drift
		for _, d := range changes {
			if Deferred(last, d.Item, d.Key) {
				waited = append(waited, d)
			} else {
				drifted = append(drifted, d)
			}
		}
		n.log().Changes(waited, generation, WhyWaited)
		metrics.CountCorrections(&n.Boot.Live.Counts, drifted, last)
		changes = drifted
	}
	n.log().Changes(changes, generation, why)
}

// Deferred reports whether a setting is one that could not be set yet.
func Deferred(drift []spec.Drift, item, key string) bool {
	return slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionDefer && d.Item == item && d.Key == key })
}

// SetSync sets the sync axis and notes since when it is so.
func (n *Session) SetSync(sync spec.Sync, detail string) error {
	return n.Owner.Commit(record.Change{Boot: func(b *state.Boot) {
		if b.Sync != sync || b.Live.SyncSince == 0 {
			b.Live.SyncSince = time.Now().Unix()
		}
		b.Sync, b.SyncDetail = sync, detail
	}})
}

// Note puts an event into the black box, once a boot. That it could not be noted is said,
// and changes nothing else.
func (n *Session) Note(g state.Generation, err error, e spec.Event) {
	if n.Lock == nil {
		return // only looking
	}
	if err != nil {
		e = blackbox.Blame(e, err)
		if item, key := items.Culprit(err); item != "" {
			e.Item, e.Key = item, key
		}
	}
	if err := events.Note(n.Box(), n.Scopes.Kernel, g, e); err != nil {
		n.Say("%v", err)
	}
}

// Last is the status after the last run, the zero one when there was none.
func (n *Session) Last() spec.Status {
	var last spec.Status
	data, err := os.ReadFile(n.Path(paths.RunStatus))
	if err != nil || json.Unmarshal(data, &last) != nil {
		return spec.Status{}
	}
	return last
}

// Damage is what the journal has lost.
func (n *Session) Damage() error {
	if n.Lost != nil {
		return n.Lost
	}
	lines := n.Journal.DamagedLines()
	if lines == 0 {
		return nil
	}
	return fmt.Errorf("%d lines of the journal are damaged: the originals in them are not known; look at %s, then remove it",
		lines, n.Folder.Path("journal", journal.Damaged))
}
