// SPDX-License-Identifier: Apache-2.0

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
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

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
		if errors.Is(err, track.ErrNothing) {
			err = nil
		}
		st = say.Nothing(l.Owner.Boot(), l.Tracker.Bootstrap.Fleet, err)
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
