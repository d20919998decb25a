// SPDX-License-Identifier: Apache-2.0

// Package look looks at a node and says what it found: the status, which is kept for those
// who only read, the metrics, and the files by which others learn that a reboot is waited
// for. Package say has the words.
package look

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/node/policy"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/metrics"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Look is at an open node.
type Look struct {
	Agent       string // its version
	Owner       *record.Owner
	Tracker     *track.Tracker // nil where no key is trusted
	Effect      *effect.Effect
	Destination *destination.Destination
	Soak        *soak.Soak
	Operations  *operate.Operations
	Protection  *policy.Protection
	Node        Node
	Events      func() ([]spec.Event, error) // of the black box
	Units       Units                        // nil where systemd does not run the node
	Hints       func(kind string) []string   // the sources that tell of changes; nil stands for those the service has named
}

// Node holds the reports of an open node on itself.
type Node interface {
	Damage() error                       // what its journal has lost
	Recipient() (of string, sealed bool) // of secrets, "" where it has none that lasts
	Corrupt() ([]string, error)          // images of which a block is not what was signed
	Listen(address string) error         // has metrics answered there, "" nowhere
}

func (l *Look) host() say.Host { return say.Host{Root: l.Effect.Dir} }

// follow has the kernel protect what an overlay wants protected, once it is set. Somebody
// who has paused a node is to be able to change what is on it.
func (l *Look) follow(found *track.Found) error {
	if !l.Protection.Kernel() {
		return nil
	}
	keys := found.Overlay.Protected()
	if p, err := l.Effect.Pause(found); err != nil {
		return err
	} else if p != nil {
		keys = nil
	}
	had, trouble := l.Owner.Boot().Live.Protection, ""
	if len(keys) > 0 || len(had.Keys) > 0 {
		if err := l.Protection.Protect(keys); err != nil {
			trouble = "kernel parameters are not protected: " + err.Error()
		}
	}
	if trouble != "" && trouble != had.Trouble {
		l.Effect.Log.Record("unprotected", events.With("why", trouble))
	}
	l.Owner.Remember(func(live *state.Live) { live.Protection.Trouble = trouble })
	return nil
}

// noteUp notes once that this boot came up, and as what.
func (l *Look) noteUp(st *spec.Status, found *track.Found) {
	if l.Owner.Boot().Live.Up {
		return
	}
	l.Owner.Remember(func(live *state.Live) { live.Up = true })
	e := spec.Event{Event: spec.EventUp, Why: "health " + string(st.Health)}
	if detail := say.Worst(st); detail != "" {
		e.Why += ": " + detail
	}
	for _, broken := range l.brokenOrders(found.Overlay.Items.Mounts) {
		l.Effect.Log.Say("an order of mounts did not hold: %s", broken)
		e.Why += "; " + broken
	}
	l.Effect.Log.Note(found.Generation, nil, e)
}

// Status looks again at everything and writes nothing.
func (l *Look) Status(ctx context.Context) (*spec.Status, error) {
	found, err := l.Effect.Running()
	if err != nil {
		return nil, err
	}
	result := l.Effect.Look(ctx, found)
	last := l.Effect.Last()
	result.Age(last.Drift, time.Now(), l.Effect.Clock.Up())
	if last.Overlay == found.Generation.Overlay {
		result.Explain(last.Items, last.Drift)
	}
	v, err := l.viewed(found, result)
	if err != nil {
		return nil, err
	}
	if v.Rescue, err = l.rescue(true); err != nil {
		return nil, err
	}
	return v.Status(), nil
}

// Watch is the status of a node on which nothing is to be changed now.
func (l *Look) Watch(ctx context.Context, found *track.Found, why string) (*spec.Status, error) {
	l.Effect.Log.Say("nothing is changed now: %s", why)
	result := l.Effect.Look(ctx, found)
	if err := l.Effect.Counted(l.Effect.Corrections().Save()); err != nil {
		return nil, err
	}
	return l.Report(found, result)
}

// Report is the status after a run; it is kept for those who only read.
func (l *Look) Report(found *track.Found, result items.Result) (*spec.Status, error) {
	if err := say.KeepTrace(l.Effect.Path(paths.RunTrace), result.Steps, !l.Effect.Begun(), l.Effect.Log.Say); err != nil {
		return nil, err
	}
	if err := l.follow(found); err != nil {
		return nil, err
	}
	last := l.Effect.Last()
	result.Age(last.Drift, time.Now(), l.Effect.Clock.Up())
	l.noteImages(found.Generation)
	v, err := l.viewed(found, result)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		v.Boot = l.Owner.Boot()
		status := v.Status()
		l.noteUp(status, found)
		l.Owner.Remember(func(live *state.Live) {
			if l.Effect.Begun() { // what a root lacks that has just come up is not drift
				metrics.CountDrift(&live.Counts, status.Drift, last.Drift)
			}
			metrics.NoteArtifacts(&live.Counts, status, time.Now())
			say.NoteAxes(live, status, time.Now())
		})
		trouble := ""
		if err := l.publishMetrics(found, status); err != nil {
			trouble = err.Error()
		}
		if said || trouble == l.Owner.Boot().Live.MetricsTrouble {
			return status, l.Keep(status)
		}
		l.Owner.Remember(func(live *state.Live) { live.MetricsTrouble = trouble }) // which the status is to say, too
		last = *status
	}
}

// Keep keeps a status for those who only read.
func (l *Look) Keep(status *spec.Status) error {
	if err := l.MarkReboot(); err != nil {
		l.Effect.Log.Say("say that a reboot is waited for: %v", err)
	}
	if len(status.LeftOut) > 0 && l.Effect.Last().Overlay != status.Overlay {
		l.Effect.Log.Say("generation %d: %s", status.Generation, spec.LeftOut(status.LeftOut))
	}
	if err := l.Owner.Note(func(live *state.Live) { say.NoteAxes(live, status, time.Now()) }); err != nil {
		return err
	}
	kept := *status
	if kept.Rescue != nil {
		shown := *kept.Rescue
		shown.Code = "" // others than root may read it
		kept.Rescue = &shown
	}
	data, err := spec.Encode(kept)
	if err != nil {
		return err
	}
	return durable.WriteFile(l.Effect.Path(paths.RunStatus), data, 0o640)
}

// Trace says how long the steps took that made this node as it is.
func (l *Look) Trace(found *track.Found) (*spec.Trace, error) {
	t, err := say.ReadTrace(l.Effect.Path(paths.RunTrace))
	if err != nil {
		return nil, err
	}
	t.Node, t.BootID, t.Boot = found.Overlay.Node, l.Effect.Scopes.Kernel, l.Owner.Boot().Trace
	t.Started = time.Now().Add(-l.Effect.Clock.Up()).UTC().Truncate(time.Second)
	return &t, nil
}

// publishMetrics writes the metrics where the overlay wants them, and removes them
// where it does not want them any more, or wants them where they must not be.
func (l *Look) publishMetrics(found *track.Found, st *spec.Status) error {
	want, wrong := metrics.Wanted(&found.Overlay)
	if err := l.MoveMetrics(want.File); err != nil {
		return errors.Join(wrong, err)
	}
	var text []byte
	if want != (spec.Metrics{}) {
		text = metrics.Text(&metrics.Facts{Now: time.Now(), Status: st, Maintenance: found.Overlay.Maintenance,
			Counts: l.Owner.Boot().Live.Counts})
	}
	return errors.Join(wrong, metrics.Publish(l.Effect.Dir, want, text), l.Node.Listen(want.Listen))
}

// MoveMetrics removes the file that metrics were written to before, and notes to
// which they are written from now on.
func (l *Look) MoveMetrics(to string) error {
	s, err := l.Owner.State()
	if err != nil || s.MetricsFile == to {
		return err
	}
	if s.MetricsFile != "" {
		if err := metrics.Withdraw(l.Effect.Dir, s.MetricsFile); err != nil {
			return err
		}
	}
	return l.Owner.Commit(record.Change{State: func(s *state.State) { s.MetricsFile = to }})
}
