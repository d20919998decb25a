// SPDX-License-Identifier: Apache-2.0

// Package look looks at a node and says what it found: the status, which is kept for those
// who only read, the metrics, and the files by which others learn that a reboot is waited
// for. Package say has the words.
package look

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
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
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
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
	l.Owner.Remember(func(live *record.Live) { live.Protection.Trouble = trouble })
	return nil
}

// noteUp notes once that this boot came up, and as what.
func (l *Look) noteUp(st *spec.Status, found *track.Found) {
	if l.Owner.Boot().Live.Up {
		return
	}
	l.Owner.Remember(func(live *record.Live) { live.Up = true })
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
		l.Owner.Remember(func(live *record.Live) {
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
		l.Owner.Remember(func(live *record.Live) { live.MetricsTrouble = trouble }) // which the status is to say, too
		last = *status
	}
}

// Keep keeps a status for those who only read.
func (l *Look) Keep(status *spec.Status) error {
	fault.Say(l.Effect.Log.Say, fault.In(l.MarkReboot(), "say that a reboot is waited for"))
	if len(status.LeftOut) > 0 && l.Effect.Last().Overlay != status.Overlay {
		l.Effect.Log.Say("generation %d: %s", status.Generation, spec.LeftOut(status.LeftOut))
	}
	if err := l.Owner.Note(func(live *record.Live) { say.NoteAxes(live, status, time.Now()) }); err != nil {
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

// Plan asks the registry and says what Sync would change. It remembers nothing.
// What Sync would leave to a reboot or to an operator is one deferred change.
func (l *Look) Plan(ctx context.Context) ([]spec.Drift, error) {
	if l.Tracker == nil {
		return nil, l.Effect.Unbound
	}
	found, err := l.Tracker.Look(ctx)
	if err != nil {
		return nil, err
	}
	before, err := l.Effect.Running()
	if err != nil && !errors.Is(err, track.ErrNothing) && refusal.Of(err) == "" {
		return nil, err
	}
	if before != nil {
		if err := l.Destination.ForThisRoot(ctx, before, found); err != nil {
			return nil, err
		}
		why := ""
		if live, reason := l.Destination.Extent(before, found); !live && l.Owner.Boot().Mode != spec.ModeAttached {
			why = "waits for a reboot: " + reason
		}
		if found.Held {
			why = found.Why
		}
		if s, err := l.Owner.State(); err == nil && s.Staged != nil && s.Staged.Same(found.Generation) {
			g := *s.Staged
			g.Layer, g.Waits = found.Generation.Layer, found.Generation.Waits
			if reason := l.Destination.Rejected(g); reason != "" {
				why = "rejected on this node: " + reason
			}
		}
		if why != "" {
			return []spec.Drift{{Item: "overlay", Key: "generation", From: fmt.Sprint(before.Generation.Generation),
				To:     fmt.Sprint(found.Generation.Generation),
				Action: spec.ActionDefer, Reason: why}}, nil
		}
	}
	if err := l.Effect.TakeOver(); err != nil {
		return nil, err
	}
	var previous []item.Item
	var guard items.Guard
	if before != nil {
		previous, guard = l.Effect.Items(before), l.Effect.Guard(found)
	}
	changes, err := items.Preview(ctx, l.Effect.Items(found), previous, guard)
	if err != nil {
		return changes, err
	}
	cannot, err := l.cannot(&found.Overlay)
	if changes = append(changes, cannot...); found.Generation.IsAhead() {
		changes = append(changes, spec.Drift{Item: "overlay", Key: "layer", From: found.Generation.Layer, To: found.Generation.Waits,
			Action: spec.ActionDefer, Reason: "waits for a reboot: " + spec.EffectOf(spec.PartLayer).Why})
	}
	return changes, err
}

// Why says what is wrong with this node. A node that cannot say what it runs still has
// its black box.
func (l *Look) Why(ctx context.Context) (spec.Why, error) {
	events, trouble := l.Events()
	if l.Effect.Unbound != nil {
		return spec.Why{}, l.Effect.Unbound
	}
	st, err := l.Status(ctx)
	if err != nil {
		st = say.Nothing(l.Owner.Boot(), l.Tracker.Bootstrap.Fleet, fault.But(err, track.ErrNothing))
	}
	return say.Why(st, l.Owner.Boot(), events, trouble), nil
}

// ForFleet returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay names no reports.
func (l *Look) ForFleet(found *track.Found, st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	to, err := say.Reporting(&found.Overlay)
	if to == nil || err != nil {
		return nil, nil, err
	}
	r := say.Report(st, to, found.Overlay.Maintenance, time.Now())
	if t, err := l.Trace(found); err == nil { // a report says more without its boot than none
		r.SetBoot(t)
	}
	return r, to, nil
}

// Wait leaves a generation to a later time.
func (l *Look) Wait(next *track.Found, why string) error {
	l.Effect.Log.Say("generation %d waits for %s", next.Generation.Generation, why)
	return errors.Join(l.Owner.SetSync(spec.SyncBehind, "waits for "+why), l.MarkReboot())
}

// MarkReboot keeps the files by which people and programs such as kured learn that a
// machine wants to be started over: there while something waits for that, and gone
// when it is no longer true. What others have written there stays.
func (l *Look) MarkReboot() error {
	why, err := l.waitsWhy()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(l.Effect.Path(paths.RebootReasons))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ours string
	var lines []string
	for line := range strings.Lines(string(old)) {
		if strings.HasPrefix(line, destination.RebootMark) {
			ours = strings.TrimSuffix(line, "\n")
			continue
		}
		lines = append(lines, line)
	}
	if ours == why {
		return nil
	}
	if why == "" && len(lines) == 0 {
		return errors.Join(durable.Remove(l.Effect.Path(paths.RebootRequired)), durable.Remove(l.Effect.Path(paths.RebootReasons)))
	}
	if why != "" {
		lines = append(lines, why+"\n")
	}
	if err := durable.WriteFile(l.Effect.Path(paths.RebootReasons), []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(l.Effect.Path(paths.RebootRequired)); err == nil {
		return nil
	}
	return durable.WriteFile(l.Effect.Path(paths.RebootRequired), []byte("*** System restart required ***\n"), 0o644)
}

// waitsWhy says for which generation a reboot is waited for, what of it needs one, and
// when the node reboots by itself; "" where none is.
func (l *Look) waitsWhy() (string, error) {
	now, err := l.Owner.Read()
	if err != nil || now.Boot.Mode == spec.ModeAttached {
		return "", err
	}
	g := l.Destination.Candidate(now.State)
	if g == nil {
		return "", nil
	}
	why := fmt.Sprintf("%sgeneration %d", destination.RebootMark, g.Generation)
	running, err := l.Effect.Running()
	if err != nil {
		return why, nil // the reason is for people; that it waits is certain
	}
	a, err := l.Destination.Awaited(running)
	switch {
	case err != nil:
		return why, nil // as above
	case a == nil:
		return "", nil
	}
	why += ": " + l.Destination.SayWay(a.Why)
	if swap := say.Swap(l.Operations.View(running)); swap != nil {
		why += "; by itself: " + string(swap.State) + ", " + swap.Detail
	}
	return why, nil
}
