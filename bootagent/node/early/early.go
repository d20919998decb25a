// SPDX-License-Identifier: Apache-2.0

// Package early sets what is to be there before services start: kernel parameters, cards, mounts
// and swap space, see docs/order.md. Whether, and how much of it, package decide says;
// bootagent/node/cycle asks, and bootagent/node makes it.
package early

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// How long what is set before services start may take: kernel parameters, cards and
// attributes, and then what names a disk, as systemd waits for one of fstab(5).
const (
	kernelWithin = 10 * time.Second
	disksWithin  = 90 * time.Second
)

// glance is how often it is looked at whether a disk or a card has come.
const glance = 100 * time.Millisecond

// Early is that of an open node. What of the overlay is to be there it adds and asks nobody;
// what it cannot set, or has no time for, the agent sets, which looks at everything.
type Early struct {
	*effect.Effect
	soak *soak.Soak
	when spec.When  // what is set is there: WhenEarly or WhenRemote
	want spec.Items // what is to be set
	kept spec.Items // how that is set of it which can cut the node off, where nothing good is there
}

// New returns that of an open node.
func New(e *effect.Effect, s *soak.Soak) *Early { return &Early{Effect: e, soak: s} }

// Prior is what speaks for setting what an overlay has for a moment. A mount that nothing
// proved and that can cut the node off is left to the agent: what hangs in it must not end the
// trial of the rest. So no trial begins with mounts alone, and none of [spec.WhenRemote].
func (e *Early) Prior(s *state.State, next *track.Found, proved bool, when spec.When) (p decide.Prior) {
	e.when, e.want, e.kept = when, next.Overlay.Items.Early(), e.Kept(s, next.Generation)
	if when == spec.WhenRemote {
		e.want = spec.Items{Mounts: e.remote(next.Overlay.Items.Mounts)}
	} else {
		p = decide.Prior{Runs: s.Early.Of(next.Generation.Overlay), Heard: e.soak.Heard()}
	}
	if !proved {
		e.want.Mounts = e.want.Harmless().Mounts
	}
	e.want.Mounts = slices.DeleteFunc(e.want.Mounts, func(m spec.Mount) bool { return e.coveredLater(m.Target) || e.coveredLater(m.Device) })
	e.want.Swaps = slices.DeleteFunc(e.want.Swaps, func(s spec.Swap) bool { return e.coveredLater(s.Device) })
	p.Cuts = strings.Join(spec.CutsOff(&e.kept, &e.want), ", ")
	return p
}

// remote are the mounts of which who made the root knew that they may come before
// remote-fs.target.
func (e *Early) remote(all []spec.Mount) []spec.Mount {
	list, err := os.ReadFile(e.Path(paths.Remote))
	if err != nil {
		e.Say("mounts over the network are left to the agent: %v", err)
	}
	targets := strings.Split(string(list), "\n")
	return slices.DeleteFunc(slices.Clone(all), func(m spec.Mount) bool { return !slices.Contains(targets, m.Target) })
}

// units are where systemd looks for units of mounts, those of fstab(5) among them.
var units = []string{"/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator", "/usr/lib/systemd/system"}

// coveredLater reports whether systemd mounts something at or above a path, which would hide
// what is mounted there before.
func (e *Early) coveredLater(path string) bool {
	for ; filepath.IsAbs(path) && path != "/"; path = filepath.Dir(path) {
		for _, dir := range units {
			if to, err := filepath.EvalSymlinks(e.Path(dir + "/" + mountUnit(path))); err == nil && to != "/dev/null" && !e.mounted(path) {
				return true
			}
		}
	}
	return false
}

// mountUnit is the name of the unit of a mount, see systemd-escape(1).
func mountUnit(path string) string {
	var name strings.Builder
	for i, b := range []byte(strings.Trim(path, "/")) {
		switch {
		case b == '/':
			name.WriteByte('-')
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == ':', b == '_', b == '.' && i > 0:
			name.WriteByte(b)
		default:
			fmt.Fprintf(&name, `\x%02x`, b)
		}
	}
	return name.String() + ".mount"
}

// mounted reports whether something is mounted at a path.
func (e *Early) mounted(path string) bool {
	text, err := os.ReadFile(e.Path("/proc/self/mountinfo"))
	return err == nil && strings.Contains(string(text), " "+path+" ")
}

// Set sets what was decided. That it begins, and what is on trial, is on the disk before.
func (e *Early) Set(ctx context.Context, next *track.Found, step decide.Step) error {
	if step.Act == decide.LeaveOut {
		e.Say("nothing is set before services start: %s", step.Why)
		e.RecordStep("early-left-out", events.With("why", step.Why))
		return e.Follow()
	}
	part := *next
	if part.Overlay.Items = e.want; step.Act == decide.SetHarmless {
		part.Overlay.Items = e.want.Harmless()
	}
	if part.Overlay.Items.IsEmpty() {
		return nil
	}
	e.RecordStep(string(e.when), events.With("generation", next.Generation.Generation), events.With("why", step.Why))
	table := e.Items(&part)
	if e.when == spec.WhenEarly {
		if err := e.kernel(ctx, &part, table, step); err != nil {
			return err
		}
	}
	e.add(ctx, disksWithin, &part, table, items.EarlyDisks, func(d spec.Drift) bool { return namesDisk(&part.Overlay.Items, d) })
	return nil
}

// kernel sets what the kernel has at once, and saves before what is on trial.
func (e *Early) kernel(ctx context.Context, part *track.Found, table []item.Item, step decide.Step) error {
	g := part.Generation
	err := e.Owner.Commit(record.Change{State: func(s *state.State) {
		s.Early = &state.EarlyRuns{Overlay: g.Overlay, Runs: s.Early.Of(g.Overlay) + 1}
		if step.Act == decide.SetOnTrial {
			s.Trial = &state.Trial{Generation: g, Confirm: state.ByReach, Within: session.Seconds(e.Within()),
				Boot: e.Scopes.Kernel, Since: time.Now().Unix(), Kept: e.kept}
		}
	}})
	if err != nil {
		return fmt.Errorf("nothing is set before services start: %w", err)
	}
	if err := items.Renew(table); err != nil {
		return err
	}
	e.add(ctx, kernelWithin, part, table, items.EarlyKernel, func(spec.Drift) bool { return e.udevBusy() })
	if ctx.Err() != nil || step.Act != decide.SetOnTrial {
		return ctx.Err()
	}
	return e.Owner.Commit(record.Change{State: func(s *state.State) { s.Trial.Whole = true }})
}

// add sets some kinds, again while something comes that is waited for, and no longer than
// within.
func (e *Early) add(ctx context.Context, within time.Duration, part *track.Found, table []item.Item, kinds []string, comes func(spec.Drift) bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		result := items.Add(ctx, table, e.Journal, kinds)
		e.RecordChanges(result, part.Generation.Generation, session.WhyBoot)
		waits := slices.ContainsFunc(result.Drift, func(d spec.Drift) bool { return d.Action == spec.ActionDefer && comes(d) })
		if waits {
			select {
			case <-ctx.Done():
			case <-time.After(glance):
				continue
			}
		}
		for _, i := range result.Items {
			if i.Error != "" || waits {
				e.Say("%s is left to the agent: %s", i.Name, i.Error)
			}
		}
		return
	}
}

// udevBusy reports whether udev still has events of devices before it.
func (e *Early) udevBusy() bool {
	_, err := os.Stat(e.Path("/run/udev/queue"))
	return err == nil
}

// namesDisk reports whether a mount or a swap names a disk that the boot waits for.
func namesDisk(want *spec.Items, d spec.Drift) bool {
	disk := func(name string) bool { return strings.HasPrefix(name, "/dev/") || !filepath.IsAbs(name) }
	return slices.ContainsFunc(want.Mounts, func(m spec.Mount) bool {
		return m.Target == d.Key && disk(m.Device) && !slices.Contains(m.Options, "nofail")
	}) || slices.ContainsFunc(want.Swaps, func(s spec.Swap) bool { return s.Device == d.Key && disk(s.Device) })
}

// Follow notes that the agent has come after what was set before services start.
func (e *Early) Follow() error {
	s, err := e.Owner.State()
	if err != nil || s.Early == nil {
		return err
	}
	return e.Owner.Commit(record.Change{State: func(s *state.State) { s.Early = nil }})
}
