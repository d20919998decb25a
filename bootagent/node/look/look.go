// SPDX-License-Identifier: Apache-2.0

// Package look looks at a node and says what it found: the status, which is kept for those
// who only read, the metrics, and the files by which others learn that a reboot is waited
// for. Package say has the words.
package look

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/node/protect"
	"github.com/caisson-os/caisson/bootagent/node/services"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Look is at an open node.
type Look struct {
	*session.Session
	Root        *stacked.Root
	Services    *services.Services
	Effect      *effect.Effect
	Destination *destination.Destination
	Soak        *soak.Soak
	Operations  *operate.Operations
	Protection  *protect.Protection
}

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
	live := &l.Boot.Live
	if len(keys) == 0 && len(live.Protection.Keys) == 0 {
		live.Protection.Trouble = ""
		return nil
	}
	trouble := ""
	if err := l.Protection.Protect(keys); err != nil {
		trouble = "kernel parameters are not protected: " + err.Error()
	}
	if trouble != "" && trouble != live.Protection.Trouble {
		l.Record("unprotected", events.With("why", trouble))
	}
	live.Protection.Trouble = trouble
	return nil
}

// noteUp notes once that this boot came up, and as what.
func (l *Look) noteUp(st *spec.Status, g state.Generation) {
	if l.Boot.Live.Up {
		return
	}
	l.Boot.Live.Up = true
	e := spec.Event{Event: spec.EventUp, Why: "health " + string(st.Health)}
	if detail := say.Worst(st); detail != "" {
		e.Why += ": " + detail
	}
	l.Note(g, nil, e)
}

// Status looks again at everything and writes nothing.
func (l *Look) Status(ctx context.Context) (*spec.Status, error) {
	found, err := l.Effect.Running()
	if err != nil {
		return nil, err
	}
	result := l.Effect.Look(ctx, found)
	last := l.Last()
	result.Age(last.Drift, time.Now(), l.Up())
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
	l.Say("nothing is changed now: %s", why)
	result := l.Effect.Look(ctx, found)
	if err := l.Effect.Counted(l.Effect.Corrections().Save()); err != nil {
		return nil, err
	}
	return l.Report(found, result)
}

// Report is the status after a run; it is kept for those who only read.
func (l *Look) Report(found *track.Found, result items.Result) (*spec.Status, error) {
	if err := say.KeepTrace(l.Path(paths.RunTrace), result.Steps, !l.Begun(), l.Say); err != nil {
		return nil, err
	}
	if err := l.follow(found); err != nil {
		return nil, err
	}
	last := l.Last()
	result.Age(last.Drift, time.Now(), l.Up())
	l.noteImages(found.Generation)
	v, err := l.viewed(found, result)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		status := v.Status()
		l.noteUp(status, found.Generation)
		l.count(status, last.Drift)
		say.NoteAxes(&l.Boot.Live, status, time.Now())
		trouble := ""
		if err := l.publishMetrics(found, status); err != nil {
			trouble = err.Error()
		}
		if said || trouble == l.Boot.Live.MetricsTrouble {
			return status, l.Keep(status)
		}
		l.Boot.Live.MetricsTrouble, last = trouble, *status // which the status is to say, too
	}
}

// Keep keeps a status for those who only read.
func (l *Look) Keep(status *spec.Status) error {
	if err := l.MarkReboot(); err != nil {
		l.Say("say that a reboot is waited for: %v", err)
	}
	if len(status.LeftOut) > 0 && l.Last().Overlay != status.Overlay {
		l.Say("generation %d: %s", status.Generation, spec.LeftOut(status.LeftOut))
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
	return durable.WriteFile(l.Path(paths.RunStatus), data, 0o640)
}

// Trace says how long the steps took that made this node as it is.
func (l *Look) Trace(found *track.Found) (*spec.Trace, error) {
	t, err := say.ReadTrace(l.Path(paths.RunTrace))
	if err != nil {
		return nil, err
	}
	t.Node, t.BootID, t.Boot = found.Overlay.Node, l.Scopes.Kernel, l.Boot.Trace
	t.Started = time.Now().Add(-l.Up()).UTC().Truncate(time.Second)
	return &t, nil
}
