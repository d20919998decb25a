// SPDX-License-Identifier: Apache-2.0

// Package items holds the one ordered table of runtime items and the reconciler
// that runs over it. Each kind is a directory beside it; item is the interface
// that they share, test/itemtest the suite that each of them passes.
//
// It is a loop over a slice on purpose: no registration, no controllers.
package items

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/mounts"
	"github.com/caisson-os/caisson/bootagent/items/nics"
	"github.com/caisson-os/caisson/bootagent/items/perm"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Options say where the items act. Empty paths are the real ones.
type Options struct {
	Journal item.Journal
	Scopes  item.Scopes

	Proc  string // /proc
	Sys   string // /sys
	Etc   string // /etc
	Lib   string // /lib, for the lists of the layer's modules
	Dev   string // /dev
	State string // the state directory
	Exec  string // scripts, their logs and their history; State/exec

	Accounts accounts.Want  // of a layer that is not stacked
	Services []spec.Service // a section of its own in the overlay
	Images   service.Images // those of services; may be nil where there are none

	Secrets    []spec.Secret                     // a section as well
	SecretDir  string                            // where they are opened; spec.SecretDir, which is a ramfs then
	OpenSecret func(spec.Secret) ([]byte, error) // nil where this node has no key
	OwnSecrets map[string]string                 // those that the agent itself shows, by the names of their files

	Runner  process.Runner // what runs scripts; nil for process groups
	Systemd units.Systemd  // nil where it does not run

	// Signed returns the scripts of every overlay whose signature this node can
	// verify; nil is none, and then no revert script is run.
	Signed func() []exec.Signed

	// Past returns the last run of a script under another program; nil knows none.
	Past exec.Past

	Leaving []string // files of another program that go when this run stands

	Log func(format string, args ...any) // warnings; nil drops them
}

// Table lists the items: what is listed first is applied first and restored last.
// Modules come first because mounts, kernel parameters and devices may need one,
// mounts next because everything else may live on one, as homes do, and accounts then, with
// their passwords, who may own what follows; scripts come last because they may rely on all of it. Secrets
// stand before all that uses them.
func Table(want spec.Items, o Options) []item.Item {
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.Sys = cmp.Or(o.Sys, "/sys")
	o.Etc = cmp.Or(o.Etc, "/etc")
	o.Lib = cmp.Or(o.Lib, "/lib")
	o.Dev = cmp.Or(o.Dev, "/dev")
	o.State = cmp.Or(o.State, paths.State)
	o.Exec = cmp.Or(o.Exec, filepath.Join(o.State, "exec"))
	disk := o.State
	if o.Scopes.Disk == "" {
		disk = "" // nothing outlives the root
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Runner == nil {
		o.Runner = new(process.Group)
	}
	if o.Signed == nil {
		o.Signed = func() []exec.Signed { return nil }
	}
	at := secrets.Place{Dir: cmp.Or(o.SecretDir, spec.SecretDir), Ram: o.SecretDir == ""}
	sealed := secrets.New(o.Secrets, at, o.OpenSecret).WithOwn(o.OwnSecrets)
	return []item.Item{
		sealed, // what uses them follows
		modules.New(want.Modules, modules.Places{Etc: o.Etc, Sys: o.Sys, Proc: o.Proc, Lib: o.Lib}, o.Systemd, o.Journal),
		mounts.New(want.Mounts, o.Proc, o.Dev, o.Journal),
		mounts.NewSwaps(want.Swaps, o.Proc, o.Dev, o.Journal),
		accounts.New(o.Accounts, filepath.Dir(o.Etc), o.Systemd, o.Journal),
		accounts.NewPasswords(want.Passwords, filepath.Dir(o.Etc), sealed.Open, o.Journal),
		files.NewLimits(want.Limits, filepath.Join(o.Etc, "security", "limits.d"), o.Journal, o.Log).WithLeaving(o.Leaving).WithKernel(o.Proc),
		files.New(want.Files, o.Etc, o.Journal).WithSecrets(files.Secrets{Dir: at.Dir, Lacks: sealed.Lacks,
			Ask: func(ctx context.Context, path, secret string) error {
				return configcheck.AskSecret(ctx, path, filepath.Join(at.Dir, secret))
			}}).WithAccounts(o.Accounts.Makes).WithReaders(func(ctx context.Context, path, content string) error {
			return configcheck.Ask(ctx, filepath.Dir(o.Etc), path, content)
		}),
		tunable.NewSysctl(want.Sysctl, filepath.Join(o.Proc, "sys"), o.Journal),
		tunable.NewSysfs(want.Sysfs, o.Sys, o.Proc, o.Journal),
		nics.NewFeatures(want.Ethtool, want.NICs, o.Sys, nics.NewEthtoolKernel(), o.Journal),
		nics.New(want.NICs, o.Sys, o.Journal),
		perm.New(want.Perm, disk, o.Journal, o.Log).WithAccounts(o.Accounts.Makes),
		units.New(want.Units, filepath.Dir(o.Etc), o.Systemd, o.Journal).WithSecrets(units.Secrets{Dir: at.Dir, Lacks: sealed.Lacks}),
		service.New(o.Services, service.Places{Root: filepath.Dir(o.Etc), Run: filepath.Join(filepath.Dir(o.Etc),
			paths.RunServices)}, o.Images, o.Systemd, o.Journal).WithAccounts(o.Accounts.Makes),
		exec.New(want.Exec, exec.Host{Dir: o.Exec, Runner: o.Runner, Scopes: o.Scopes, Journal: o.Journal, Signed: o.Signed, Log: o.Log,
			Past: o.Past, Secrets: exec.Secrets{Dir: at.Dir, All: o.Secrets, Lacks: sealed.Lacks}}),
	}
}

// The kinds that are set before services start: those that the kernel has at once come before
// those that wait for disks, which may use what they set, as huge pages.
var (
	EarlyKernel = []string{tunable.SysctlName, tunable.SysfsName, nics.FeaturesName, nics.Name}
	EarlyDisks  = []string{mounts.Name, mounts.SwapsName}
)

// Hints is the one table of what tells of which kind; a kind that is not in it has none, as
// scripts, which are looked at when they are due, and secrets, which are root's alone.
var Hints = []item.Hint{
	{Kind: "modules", Sources: []string{item.Inotify, item.Uevent}, Devices: []string{"module"}, Places: func(i *spec.Items) []item.Place {
		if i.Modules == nil {
			return nil
		}
		return []item.Place{{Path: rules.ModulesLoadFile}, {Path: rules.ModprobeFile}}
	}},
	{Kind: "mounts", Sources: []string{item.Mountinfo, item.Uevent}, Devices: []string{"block"}},
	{Kind: "swaps", Sources: []string{item.Swaps, item.Uevent}, Devices: []string{"block"}},
	{Kind: "limits", Sources: []string{item.Inotify}, Places: func(i *spec.Items) []item.Place {
		return plain.Each(i.Limits, func(l spec.Limit) item.Place { return item.Place{Path: rules.LimitFile(l.ID)} })
	}},
	{Kind: "files", Sources: []string{item.Inotify}, Places: func(i *spec.Items) []item.Place {
		return plain.Each(i.Files, func(f spec.File) item.Place { return item.Place{Path: f.Path} })
	}},
	{Kind: "passwords", Sources: []string{item.Inotify}, Places: func(i *spec.Items) []item.Place {
		if len(i.Passwords) == 0 {
			return nil
		}
		return []item.Place{{Path: "/etc/shadow"}}
	}},
	{Kind: "sysctl", Sources: []string{item.BPF, item.Rtnetlink}},
	{Kind: "sysfs", Sources: []string{item.Inotify, item.Uevent}, Devices: []string{"module", "block", "net", "cpu", "pci"},
		Places: func(i *spec.Items) []item.Place {
			return plain.Each(i.Sysfs, func(s spec.Sysfs) item.Place { return item.Place{Path: s.Path, Itself: true} })
		}},
	{Kind: "ethtool", Sources: []string{item.Ethtool, item.Rtnetlink}},
	{Kind: "nics", Sources: []string{item.Ethtool, item.Rtnetlink, item.Uevent}, Devices: []string{"net"}},
	{Kind: "perm", Sources: []string{item.Inotify}, Places: func(i *spec.Items) (out []item.Place) {
		if i.Perm == nil {
			return nil
		}
		for _, p := range i.Perm.Paths {
			if !strings.ContainsAny(p.Path, `*?[\`) {
				out = append(out, item.Place{Path: p.Path, Itself: true})
			}
		}
		return out
	}},
	{Kind: "service", Sources: []string{item.DBus, item.Mountinfo}},
	{Kind: "units", Sources: []string{item.DBus, item.Inotify}, Places: func(i *spec.Items) (out []item.Place) {
		for _, u := range i.Units {
			out = append(out, item.Place{Path: rules.UnitFile(u.Name)}, item.Place{Path: path.Dir(rules.UnitDropIn(u.Name, "any"))})
			for _, d := range u.DropIns {
				out = append(out, item.Place{Path: rules.UnitDropIn(u.Name, d.Name)})
			}
		}
		return out
	}},
}

// Add makes what items of some kinds want and the system lacks. What left the config stays:
// items that are a part of what is wanted do not know what that is.
func Add(ctx context.Context, table []item.Item, j item.Journal, kinds []string) Result {
	r := newRun(slices.DeleteFunc(slices.Clone(table), func(i item.Item) bool { return !slices.Contains(kinds, i.Name()) }), j)
	r.preflight(ctx)
	r.apply(ctx)
	return r.result(ctx)
}

// each does something with the items that can do more than each item can.
func each[T any](table []item.Item, do func(T) error) error {
	var errs []error
	for _, it := range table {
		if can, ok := it.(T); ok {
			errs = append(errs, do(can))
		}
	}
	return errors.Join(errs...)
}

// Renew has kinds of the kernel forget originals that are those of a root before.
func Renew(table []item.Item) error {
	return each(table, func(i interface{ Renew() error }) error { return i.Renew() })
}

// adopter is a kind that can take over originals which another program recorded.
type adopter interface {
	item.Item
	// Adopt returns the entries that the journal would hold if this item had found
	// the system as it wants it and had made it what it is. It writes nothing.
	Adopt() ([]item.Entry, error)
}

// Adopt returns entries for originals that another program recorded: items that want
// the system as it was before that program. What cannot be put back is in the error;
// the entries hold all the same.
func Adopt(originals []item.Item) (entries []item.Entry, err error) {
	err = each(originals, func(i adopter) error {
		found, err := i.Adopt()
		entries = append(entries, found...)
		return fault.In(err, "%s", i.Name())
	})
	return entries, err
}

// Kept returns what is set now of what the journal has originals of, as items that want
// it so: for the kinds that outlive a root, or that another program can leave.
func Kept(table []item.Item) (kept spec.Items) {
	for _, it := range table {
		if k, ok := it.(interface{ Kept(*spec.Items) }); ok {
			k.Kept(&kept)
		}
	}
	return kept
}

// Reconcile makes the system as the items want it: check all, restore what left
// the config (last kind first), apply in order, check again. What that second
// check finds is the truth. An item's failure does not stop the others.
//
// The journal is the one that the items were made with.
func Reconcile(ctx context.Context, items []item.Item, j item.Journal) Result {
	return newRun(items, j).reconcile(ctx)
}

// Guard says what is done about drift: about what was set, and is not so any more.
type Guard interface {
	// Judge returns a drift as it is to be treated: as it is to correct it, else with
	// ActionReport, ActionDefer or ActionQuarantine. What a change asks for and was not
	// asked for before is fresh.
	Judge(d spec.Drift, fresh bool) spec.Drift
	// Held lists what of a kind is not in its drift and would not be corrected.
	Held(item string, drift []spec.Drift) []spec.Drift
	// Correct takes note of corrections before they are made.
	Correct(due []spec.Drift) error
	// Undone takes back that one was made; it failed.
	Undone(d spec.Drift)
}

// Keep is Reconcile for a system that was made as the items want it before: what is
// different now is drift, and the guard decides about it.
func Keep(ctx context.Context, items []item.Item, j item.Journal, g Guard) Result {
	r := newRun(items, j)
	r.guard = g
	return r.reconcile(ctx)
}

// Transact is Reconcile for a change on a live node: all of it, or none. The
// change holds the settings of next that previous lacks. What the node lacked before,
// such as what a run that was cut had not done yet, is tried when the change
// stands, and not held against it.
//
// When the preflight refuses a part of the change, nothing is touched; when
// something fails later, the previous items are put in place again. The guard decides
// about what was drift before; nil is one that lets everything be corrected.
func Transact(ctx context.Context, next, previous []item.Item, j item.Journal, g Guard) Result {
	before := newRun(previous, j)
	before.preflight(ctx)
	r := newRun(next, j)
	r.before, r.known, r.fresh = before, before.all(), g
	r.preflight(ctx)
	if err := r.refusal(); err != nil {
		result := r.result(ctx)
		result.Err = fmt.Errorf("nothing was changed: %w", err)
		return result
	}
	r.restore(ctx)
	if r.failure() == nil {
		r.apply(ctx)
	}
	result := r.result(ctx)
	if result.Err == nil {
		if len(r.known) == 0 {
			return result
		}
		rest := Keep(ctx, next, j, g)
		rest.Changes = append(result.Changes, rest.Changes...)
		rest.Steps = append(result.Steps, rest.Steps...)
		rest.Err = nil // the change stands; what is missing still degrades the node
		return rest
	}
	// A cancelled change is taken back all the same.
	ctx = context.WithoutCancel(ctx)
	undo := newRun(previous, j)
	undo.guard, undo.drifted = g, before.keys()
	r.giveBack(ctx, undo.drifted)
	back := undo.reconcile(ctx)
	back.RolledBack = true
	back.Steps = append(result.Steps, back.Steps...)
	back.Err = fmt.Errorf("the change was taken back: %w", errors.Join(result.Err, back.Err))
	return back
}

// Undo takes back a change that was made, or begun: where the system is as tried wants it
// and not as back does, it is made as back does. What neither finds is drift, and left
// to the next look.
func Undo(ctx context.Context, back, tried []item.Item, j item.Journal, g Guard) Result {
	made := newRun(tried, j)
	made.preflight(ctx)
	r := newRun(back, j)
	r.known, r.guard = made.all(), g
	return r.reconcile(ctx)
}

// Look checks and writes nothing: the result is that of a run that did nothing.
func Look(ctx context.Context, items []item.Item, g Guard) Result {
	r := newRun(items, nil)
	r.guard = g
	r.preflight(ctx)
	return r.result(ctx)
}

// Preview returns what Transact would do, or Reconcile where previous is empty. It
// writes nothing.
func Preview(ctx context.Context, next, previous []item.Item, g Guard) ([]spec.Drift, error) {
	before := newRun(previous, nil)
	before.preflight(ctx)
	r := newRun(next, nil)
	r.guard, r.known, r.fresh = g, before.all(), g
	r.preflight(ctx)
	return slices.Concat(r.drift...), r.failure()
}

// Wait ends when nothing that the items started runs in the background any more.
// An agent that applies once and ends calls it before it does.
func Wait(items []item.Item) error {
	return each(items, func(i interface{ Wait() error }) error { return i.Wait() })
}
