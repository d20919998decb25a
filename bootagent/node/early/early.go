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
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
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
	Dir     string // prefix of every path, for tests
	Kernel  string // id of its boot
	Owner   *record.Owner
	Journal *journal.Journal
	Items   func(*track.Found) []item.Item
	Kept    func(*state.State, state.Generation) spec.Items // how that is set which can cut the node off, where nothing good is there
	Within  time.Duration                                   // that a change has to prove that the node is still reached
	Log     Log
}

// Log is where it is written down what a node does.
type Log interface {
	Record(event string, fields ...events.Field)
	RecordChanges(result items.Result, generation uint64, why string)
	Say(format string, args ...any)
}

// Plan holds the part of a generation that is to be there before services start.
type Plan struct {
	next       *track.Found
	when       spec.When // it is to be there: WhenEarly or WhenRemote
	want, kept spec.Items
}

// Plan returns what of a generation is to be there at a moment. A mount that nothing proved and
// that can cut the node off is left to the agent: what hangs in it must not end the trial of the
// rest. So no trial begins with mounts alone, and none of [spec.WhenRemote].
func (e *Early) Plan(s *state.State, next *track.Found, proved bool, when spec.When) Plan {
	want := next.Overlay.Items.Early()
	if when == spec.WhenRemote {
		want = spec.Items{Mounts: e.remote(next.Overlay.Items.Mounts)}
	}
	unproved := func(m spec.Mount) bool {
		return !proved && len(spec.Items{Mounts: []spec.Mount{m}}.Harmless().Mounts) == 0
	}
	later := next.Overlay.Items.Needing(func(m spec.Mount) bool { return unproved(m) || slices.ContainsFunc(m.Paths(), e.coveredLater) })
	want.Mounts = slices.DeleteFunc(want.Mounts, func(m spec.Mount) bool { return slices.Contains(later, m.Target) })
	want.Swaps = slices.DeleteFunc(want.Swaps, func(s spec.Swap) bool { return e.coveredLater(s.Device) })
	return Plan{next, when, want, e.Kept(s, next.Generation)}
}

// Prior returns the reasons to set the plan.
func (p Plan) Prior(now record.Snapshot) decide.Prior {
	prior := decide.Prior{Cuts: strings.Join(spec.CutsOff(&p.kept, &p.want), ", ")}
	if p.when == spec.WhenEarly {
		prior.Runs, prior.Heard = now.State.Early.Of(p.next.Generation.Overlay), now.Boot.Heard()
	}
	return prior
}

// remote are the mounts of which who made the root knew that they may come before
// remote-fs.target.
func (e *Early) remote(all []spec.Mount) []spec.Mount {
	list, err := os.ReadFile(e.path(paths.Remote))
	fault.Say(e.Log.Say, fault.In(err, "mounts over the network are left to the agent"))
	targets := strings.Split(string(list), "\n")
	return slices.DeleteFunc(slices.Clone(all), func(m spec.Mount) bool { return !slices.Contains(targets, m.Target) })
}

func (e *Early) path(name string) string { return filepath.Join(e.Dir, name) }

// unitDirs are where systemd looks for units of mounts, those of fstab(5) among them.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator", "/usr/lib/systemd/system"}

// coveredLater reports whether systemd mounts something at or above a path, which would hide
// what is mounted there before.
func (e *Early) coveredLater(path string) bool {
	for ; filepath.IsAbs(path) && path != "/"; path = filepath.Dir(path) {
		for _, dir := range unitDirs {
			if to, err := filepath.EvalSymlinks(e.path(dir + "/" + units.MountUnit(path))); err == nil && to != "/dev/null" && !e.mounted(path) {
				return true
			}
		}
	}
	return false
}

// mounted reports whether something is mounted at a path.
func (e *Early) mounted(path string) bool {
	text, err := os.ReadFile(e.path("/proc/self/mountinfo"))
	return err == nil && strings.Contains(string(text), " "+path+" ")
}

// Set sets what was decided. That it begins, and what is on trial, is on the disk before.
func (e *Early) Set(ctx context.Context, p Plan, step decide.Step) error {
	named := events.Transition(step.Name)
	if step.Act == decide.LeaveOut {
		e.Log.Say("nothing is set before services start: %s", step.Why)
		e.Log.Record("early-left-out", events.With("why", step.Why), named)
		return e.Follow()
	}
	part := *p.next
	if part.Overlay.Items = p.want; step.Act == decide.SetHarmless {
		part.Overlay.Items = p.want.Harmless()
	}
	if part.Overlay.Items.IsEmpty() {
		return nil
	}
	e.Log.Record(string(p.when), events.With("generation", part.Generation.Generation), events.With("why", step.Why), named)
	table := e.Items(&part)
	if p.when == spec.WhenEarly {
		if err := e.kernel(ctx, &part, table, p.kept, step); err != nil {
			return err
		}
	}
	e.add(ctx, &part, table, wait{disksWithin, items.EarlyDisks, func(d spec.Drift) bool { return namesDisk(&part.Overlay.Items, d) }})
	return nil
}

// kernel sets what the kernel has at once, and saves before what is on trial.
func (e *Early) kernel(ctx context.Context, part *track.Found, table []item.Item, kept spec.Items, step decide.Step) error {
	g := part.Generation
	err := e.Owner.Commit(record.Change{State: func(s *state.State) {
		s.Early = &state.EarlyRuns{Overlay: g.Overlay, Runs: s.Early.Of(g.Overlay) + 1}
		if step.Act == decide.SetOnTrial {
			s.Trial = &state.Trial{Generation: g, Confirm: state.ByReach, Within: int64(e.Within / time.Second),
				Boot: e.Kernel, Since: time.Now().Unix(), Kept: kept, Early: true}
		}
	}})
	if err != nil {
		return fmt.Errorf("nothing is set before services start: %w", err)
	}
	if err := items.Renew(table); err != nil {
		return err
	}
	e.add(ctx, part, table, wait{kernelWithin, items.EarlyKernel, func(spec.Drift) bool {
		_, err := os.Stat(e.path("/run/udev/queue")) // is there while udev has events of devices before it
		return err == nil
	}})
	return ctx.Err()
}

// wait says how long some kinds may take, and which of their drift may come to an end by itself.
type wait struct {
	within time.Duration
	kinds  []string
	comes  func(spec.Drift) bool
}

// add sets the kinds of a wait, again while something comes that is waited for.
func (e *Early) add(ctx context.Context, part *track.Found, table []item.Item, w wait) {
	ctx, cancel := context.WithTimeout(ctx, w.within)
	defer cancel()
	for {
		result := items.Add(ctx, table, e.Journal, w.kinds)
		e.Log.RecordChanges(result, part.Generation.Generation, events.WhyBoot)
		waits := slices.ContainsFunc(result.Drift, func(d spec.Drift) bool { return d.Action == spec.ActionDefer && w.comes(d) })
		if waits && stall.Rest(ctx, glance) == nil {
			continue
		}
		for _, i := range result.Items {
			if i.Error != "" || waits {
				e.Log.Say("%s is left to the agent: %s", i.Name, i.Error)
			}
		}
		return
	}
}

// namesDisk reports whether a mount or a swap names a disk that the boot waits for.
func namesDisk(want *spec.Items, d spec.Drift) bool {
	disk := func(name string) bool {
		tag, _ := rules.MountTag(name)
		return tag != "" || strings.HasPrefix(name, "/dev/")
	}
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
