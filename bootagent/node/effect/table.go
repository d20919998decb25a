// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/takeover"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Table makes the items of a generation, and knows what was here before any of them.
type Table struct {
	Dir      string      // prefix of every path, for tests
	Scopes   item.Scopes // of this root and of the boot of its kernel
	Alone    bool        // no other process acts: what is found may be written down
	Owner    *record.Owner
	Folder   *state.Folder
	Journal  *journal.Journal
	Tracker  *track.Tracker // nil where no key is trusted
	Root     *stacked.Root
	Services *stacked.Services
	Runner   process.Runner // of programs; nil is process groups
	Systemd  units.Systemd  // nil where it does not run
	Log      Log

	Began []item.Item     // all that this node made
	taken *takeover.Found // what Divingbell left and is not put away yet
}

// Log is where it is written down what a node does.
type Log interface {
	Record(event string, fields ...events.Field)
	RecordChanges(result items.Result, generation uint64, why string)
	Note(g state.Generation, err error, e spec.Event) // into the black box
	Say(format string, args ...any)
}

// Path returns where a file of the machine is.
func (t *Table) Path(name string) string { return filepath.Join(t.Dir, name) }

// EndDeadline ends the deadline of this boot: it came up.
func (t *Table) EndDeadline() error { return uptime.EndDeadline(t.Path(paths.RunDeadline)) }

// seam is a directory of a test's root, and the real one where there is none.
func (t *Table) seam(name string) string {
	if t.Dir == "" {
		return ""
	}
	return t.Path(name)
}

// Items are all kinds with what a generation wants of them.
func (t *Table) Items(f *track.Found) []item.Item {
	o := &f.Overlay
	open, dir := t.opener(o)
	var past exec.Past
	var leaving []string // what retire takes away
	if t.taken != nil {  // else Divingbell left nothing
		past, leaving = t.taken, t.taken.Settings()
	}
	table := items.Table(o.Items, items.Options{Accounts: t.Root.Accounts(f.Generation.Layer), Services: t.Services.Effective(o.Services),
		Images: t.Services.Images(), Secrets: o.Secrets, SecretDir: dir, OpenSecret: open, OwnSecrets: track.OwnSecrets(o),
		Journal: t.Journal, Scopes: t.Scopes, State: t.Folder.Path(), Exec: t.Folder.Path("exec"), Log: t.Log.Say,
		Proc: t.seam("/proc"), Etc: t.seam("/etc"), Sys: t.seam("/sys"), Lib: t.seam("/lib"), Dev: t.seam("/dev"),
		Runner: t.Runner, Systemd: t.Systemd, Signed: t.signed, Past: past, Leaving: leaving})
	t.Began = append(t.Began, table...)
	return table
}

// opener returns what opens the secrets of an overlay, nil where this node has no key, and where
// they are opened: "" is the usual place.
func (t *Table) opener(o *spec.Overlay) (open func(spec.Secret) ([]byte, error), dir string) {
	dir = t.seam(spec.SecretDir)
	if len(o.Secrets) == 0 {
		return nil, dir
	}
	key, err := secrets.Keys{State: t.Folder.Path(), Memory: t.Path(paths.RunUnlocked)}.Read()
	switch {
	case err != nil:
		return func(spec.Secret) ([]byte, error) { return nil, err }, dir
	case key == nil:
		return nil, dir
	}
	return key.Open, dir
}

// signed returns the scripts of every overlay that is kept and verified.
func (t *Table) signed() []exec.Signed {
	if t.Tracker == nil {
		return nil
	}
	kept, err := t.Tracker.Kept()
	fault.Say(t.Log.Say, err)
	var scripts []exec.Signed
	for _, a := range kept {
		for _, w := range a.Overlay.Items.Exec {
			scripts = append(scripts, exec.Signed{Script: w, Secrets: a.Overlay.Secrets})
		}
	}
	return scripts
}

// Reverting returns the digests of the overlays whose scripts are still to be
// taken back: without their signature no revert script runs.
func (t *Table) Reverting() []string {
	pending := item.Keys(t.Journal.Entries(exec.Name))
	if len(pending) == 0 || t.Tracker == nil {
		return nil
	}
	kept, err := t.Tracker.Kept()
	fault.Say(t.Log.Say, err)
	var digests []string
	for _, a := range kept {
		for _, w := range a.Overlay.Items.Exec {
			if key := exec.Key(w, a.Overlay.Secrets); w.Revert != "" && pending[key] {
				digests = append(digests, a.Digest)
				delete(pending, key) // the newest overlay that has it is enough
			}
		}
	}
	return digests
}

// LastRun returns the last run of a script of a generation and what it printed.
func (t *Table) LastRun(found *track.Found, name string) (*exec.Last, error) {
	for _, it := range t.Items(found) {
		if scripts, ok := it.(*exec.Item); ok {
			return scripts.Last(name)
		}
	}
	return nil, nil // the table has scripts
}

// Prepare does what comes before a run that changes something.
func (t *Table) Prepare(ctx context.Context, found *track.Found) error {
	if err := t.TakeOver(); err != nil {
		return err
	}
	t.Services.Bring(ctx, &found.Overlay)
	return nil
}

// TakeOver makes what Divingbell recorded on an attached host the journal's
// originals, before the first run changes anything. As long as the records are
// there it does so again, since a reboot in between ends what the kernel held. A
// node that is only looked at supposes them.
func (t *Table) TakeOver() error {
	if t.Owner.Boot().Mode != spec.ModeAttached || t.taken != nil {
		return nil
	}
	found, err := takeover.Look(t.Dir)
	if err != nil || found == nil {
		return err
	}
	if t.Alone {
		if err := takeover.Active(t.Path("/proc")); err != nil {
			return err
		}
	}
	entries, adoptErr := items.Adopt(t.Items(&track.Found{Overlay: spec.Overlay{Items: found.Originals}}))
	t.taken = found
	entries = slices.DeleteFunc(entries, func(e item.Entry) bool {
		return slices.ContainsFunc(t.Journal.Entries(e.Item), func(k item.Entry) bool { return k.Key == e.Key })
	})
	if !t.Alone {
		t.Journal.Suppose(entries...)
		return nil
	}
	if err := t.Journal.Record(entries...); err != nil {
		return fmt.Errorf("keep the originals that Divingbell recorded: %w", err)
	}
	for _, e := range entries {
		t.Log.Record("taken-over", events.With("item", e.Item), events.With("key", e.Key), events.With("original", string(e.Prior)))
	}
	for _, doubt := range found.Doubts {
		t.Log.Say("not taken over: %s", doubt)
	}
	if adoptErr != nil {
		t.Log.Say("not taken over: %v", adoptErr)
	}
	return nil
}

// Retire takes away what Divingbell left to be set at every boot, once a run has
// put caisson's settings and the originals in place. A script that fails is no
// reason to wait.
func (t *Table) Retire(ctx context.Context, result items.Result) error {
	if t.taken == nil || !t.Alone || ctx.Err() != nil {
		return nil
	}
	if t.Owner.Boot().Live.Without != nil {
		t.Log.Say("what Divingbell left stays until a generation is in effect whole")
		return nil
	}
	for _, i := range result.Items {
		if i.Name != exec.Name && i.State == spec.ItemDegraded {
			t.Log.Say("what Divingbell left stays until %s is in order", i.Name)
			return nil
		}
	}
	found := t.taken
	t.taken = nil
	kept, err := found.Retire()
	if err != nil {
		return err
	}
	t.Log.Say("taken over from Divingbell: %s; its records are in %s", found.Summary(), kept)
	for _, what := range found.Left {
		t.Log.Say("left as Divingbell made them, since they need a layer: %s", what)
	}
	if t.Runner == nil {
		return nil // no systemd has read the units
	}
	return process.Manager{}.Reload(ctx)
}
