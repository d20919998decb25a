// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/node/operate"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// NoteDeadline notes in the black box that the boot of a new generation is ended, since it did not
// prove itself: what systemd waits for, and what failed.
func NoteDeadline(ctx context.Context, root string) error {
	id, err := session.KernelID()
	if err != nil {
		return err
	}
	why := "it did not prove itself in time"
	if root == "" && process.SystemdRuns() {
		failed, starting, err := process.Manager{}.Trouble(ctx)
		for _, w := range []struct {
			what  string
			units []string
		}{{"failed", failed}, {"still starting", starting}} {
			if len(w.units) > 0 {
				why += fmt.Sprintf("; %s: %s", w.what, strings.Join(w.units, ", "))
			}
		}
		if err != nil {
			why += fmt.Sprintf("; %v", err)
		}
	}
	return events.Deadline(root, id, why)
}

// DeadlineOver is an error where a boot has not proved its generation within seconds, and
// what its scripts took.
func DeadlineOver(root, seconds string) error {
	within, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return err
	}
	over, err := uptime.DeadlineOver(filepath.Join(root, paths.RunDeadline), uptime.Now(), within)
	if over {
		err = fmt.Errorf("this boot has not proved its generation within %s and the time of its scripts", within)
	}
	return err
}

// NobodyLooks is [cli.ErrFailed] where a change is judged and the agent has not looked at it
// for longer than a look may take.
func NobodyLooks(root string) error {
	if _, err := os.Stat(filepath.Join(root, paths.RunGates)); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing is judged any more
	} else if err != nil {
		return err
	}
	over, err := uptime.DeadlineOver(filepath.Join(root, paths.RunJudged), uptime.Now(), 0)
	switch {
	case errors.Is(err, fs.ErrNotExist): // or nothing bounds it
		return nil
	case over:
		return cli.ErrFailed
	}
	return err
}

// RestoreAll takes everything back that the journal knows, as if the config had
// become empty. The next apply sets it again. Where lines of the journal are
// damaged, originals are missing: that is an error, after all others are back.
func (n *Node) RestoreAll(ctx context.Context) error {
	found, err := n.effect.Running()
	if err == nil {
		err = n.effect.TakeOver()
	} else { // nothing was applied that could be taken back
		found, err = &track.Found{}, nil
	}
	if err != nil {
		return err
	}
	if err := n.look.MoveMetrics(""); err != nil {
		return err
	}
	result := n.effect.Bounded(ctx, "restoring", found, n.effect.MakingTime(&found.Overlay), func(ctx context.Context) items.Result {
		return items.Reconcile(ctx, n.effect.Items(new(track.Found)), n.session.Journal)
	})
	n.session.RecordChanges(result, 0, "restore --all")
	if n.session.Tracker == nil && result.Err != nil {
		result.Err = cli.WithHint(result.Err, "name the keys whose scripts may run here: caisson-agent restore --all --from "+
			"registry.example:5000/metal-a --fleet metal-a --key operator.pub")
	}
	lifted := n.protect.Protect(nil)
	n.session.Record("restored", events.With("changes", len(result.Changes)), events.With("why", "restore --all"))
	return errors.Join(result.Err, lifted, n.effect.Counted(n.effect.Corrections().Begin("")),
		n.effect.Retire(ctx, result), n.session.Damage())
}

// Plan asks the registry and says what Sync would change. It remembers nothing.
func (n *Node) Plan(ctx context.Context) ([]spec.Drift, error) { return n.look.Plan(ctx) }

// Settle waits until no script that this node started runs in the background any
// more, and returns the status with what came of them. One that an agent began that was killed
// may have run while this one looked, and be due again since it ended.
func (n *Node) Settle(ctx context.Context, st *spec.Status) (*spec.Status, error) {
	if err := items.Wait(n.effect.Began); err != nil || st == nil || n.session.Tracker == nil {
		return st, err
	}
	now, err := n.look.Status(ctx)
	if err == nil && slices.ContainsFunc(now.Drift, exec.Cut) {
		if now, err = n.Apply(ctx); err == nil {
			err = items.Wait(n.effect.Began)
		}
		if err == nil {
			now, err = n.look.Status(ctx)
		}
	}
	if err != nil {
		return st, err
	}
	return now, n.look.Keep(now)
}

// Early looks at some kinds, of which a caller has said that they may be others now, and
// does what Apply does about drift there. There is no status when nothing is different.
func (n *Node) Early(ctx context.Context, kinds []string) (*spec.Status, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, err
	}
	guard := n.effect.Guard(found)
	if guard == nil { // nothing was set yet
		return n.cycle.Apply(ctx)
	}
	paused, err := n.effect.PausedBy(found)
	if err != nil {
		return nil, err
	}
	some := slices.DeleteFunc(n.effect.Items(found), func(i item.Item) bool { return !slices.Contains(kinds, i.Name()) })
	result := n.effect.LookAt(ctx, found, func(ctx context.Context) items.Result {
		if paused == "" {
			return items.Keep(ctx, some, n.session.Journal, guard)
		}
		return items.Look(ctx, some, guard)
	})
	n.session.RecordChanges(result, found.Generation.Generation, "drift")
	if err := n.effect.Counted(n.effect.Corrections().Keep(found.Generation.Overlay)); err != nil {
		return nil, err
	}
	last := n.session.Last()
	if len(result.Changes) == 0 && result.Same(last) {
		return nil, nil
	}
	result.Beside(last)
	return n.look.Report(found, result)
}

// Overlay returns the overlay that the node runs.
func (n *Node) Overlay() (*spec.Overlay, error) {
	return running(n, func(f *track.Found) (*spec.Overlay, error) { return &f.Overlay, nil })
}

// Clear ends the quarantine of one setting, of a kind when key is empty, or of all, and
// returns what was quarantined. The service corrects it within seconds.
func (n *Node) Clear(item, key string) ([]spec.Drift, error) { return n.effect.Clear(item, key) }

// Wipe asks for everything again, as if nothing had been fetched, and then forgets what
// this node keeps of generations that it neither runs nor is to run. Where the registry
// gives nothing that holds, nothing is forgotten. What says which keys count stays,
// and what is of this node and not of the registry: floor, epoch, what was rejected, holds,
// originals, the histories of scripts and operations.
func (n *Node) Wipe(ctx context.Context) (*spec.Status, error) {
	if n.session.Tracker == nil {
		return nil, n.session.Unbound
	}
	n.session.Tracker.Anew = true
	st, err := n.cycle.Sync(ctx)
	if err != nil {
		return st, fmt.Errorf("nothing is wiped: %w", err)
	}
	s, err := n.session.Owner.State()
	if err != nil {
		return st, err
	}
	running, err := n.effect.Running()
	if err != nil {
		return st, err
	}
	judged, err := gate.Load(n.session.Path(paths.RunGates))
	switch {
	case err != nil:
		return st, err
	case s.Trial.Pending(), judged.Of(n.session.Scopes.Root, running.Generation.Overlay):
		return st, errors.New("nothing is wiped: this node may have to go back from the change that is on trial")
	}
	gone := 0
	err = n.session.Owner.Commit(record.Change{State: func(to *state.State) {
		gone = to.Forget(running.Generation, n.session.Boot.Generation)
		s = to
	}})
	if err != nil {
		return st, err
	}
	n.session.Record("wiped", events.With("generations", gone), events.With("why", "sync --wipe"))
	n.destination.Tidy(s)
	return st, nil
}

// ErrNoKey is for a node without a key of secrets.
var ErrNoKey = session.ErrNoKey

// Recipients returns the key to seal secrets to for this node and, while its key is rotated,
// the former one.
func (n *Node) Recipients() (now, before string, err error) { return n.session.Recipients() }

// RotateRecipient makes the next key of this node's secrets, where no rotation is under way.
// The one before is removed once nothing needs it that the node runs or goes back to.
func (n *Node) RotateRecipient() error { return n.session.RotateRecipient() }

// Remembers reports whether what an operator says on this node outlives its boot.
func (n *Node) Remembers() bool { return n.session.Scopes.Disk != "" && !n.session.Boot.ReadOnly }

// Freeze has the node keep what it has, until Forward or its time is over.
func (n *Node) Freeze(reason string, lasts time.Duration) error { return n.holds.Freeze(reason, lasts) }

// Forward ends what Freeze, Rollback and Pin began.
func (n *Node) Forward(why string) error { return n.holds.Forward(why) }

// Pause has the node change nothing, until Resume or its time is over. It looks and
// reports all the same. What was protected can be changed by everybody.
func (n *Node) Pause(reason string, lasts time.Duration) error {
	if err := n.holds.Pause(reason, lasts); err != nil {
		return err
	}
	return n.protect.Lift()
}

// Resume ends that. A pause of the fleet is the fleet's to end.
func (n *Node) Resume() error { return n.holds.Resume() }

// Rollback goes back to the generation that this node ran well before the one that it
// runs, and keeps it. No registry is asked.
func (n *Node) Rollback(ctx context.Context, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.cycle.ReturnTo(ctx, n.holds.Make(spec.HoldRollback, reason, lasts), operate.Earlier)
}

// Pin goes to one of the generations that this node ran well, and keeps it.
func (n *Node) Pin(ctx context.Context, generation uint64, reason string, lasts time.Duration) (*spec.Status, error) {
	return n.cycle.ReturnTo(ctx, n.holds.Make(spec.HoldPin, reason, lasts), operate.Numbered(generation))
}

// Confirm ends the trial of a change that waits for its operator: it stands.
func (n *Node) Confirm(ctx context.Context) error {
	if err := n.cycle.Settle(ctx); err != nil {
		return err
	}
	now, err := n.session.Owner.Read()
	if err != nil {
		return err
	}
	s := now.State
	switch {
	case n.session.Waiting(s):
	case s.Trial != nil && !s.Trial.Pending():
		return fmt.Errorf("generation %d was undone: %s", s.Trial.Generation.Generation, s.Trial.Reason)
	default:
		return errors.New("nothing waits to be confirmed")
	}
	g := s.Trial.Generation
	err = n.session.Owner.Commit(record.Change{Urgent: record.Word, State: func(to *state.State) {
		to.Trial.Generation.Unread = n.soak.Unread(to, g)
		to.Confirm(n.root.LayersHere(to)...)
		s = to
	}, Boot: func(b *record.Boot) {
		if s.Best().Generation == g.Generation {
			b.Live.Without = nil
		}
	}})
	if err != nil {
		return err
	}
	n.session.Record("confirmed", events.With("generation", g.Generation), events.With("overlay", g.Overlay))
	n.destination.Tidy(s)
	return n.effect.EndDeadline()
}

// Retry forgets that a generation was undone or did not pass its gates, and that a swap
// failed, and asks for it again.
func (n *Node) Retry(ctx context.Context) (*spec.Status, error) {
	now, err := n.session.Owner.Read()
	if err != nil {
		return nil, err
	}
	if what, why := now.State.Retry(); what != nil {
		n.session.Record("retry", events.With("generation", what.Generation), events.With("why", why))
		if err := n.session.Owner.Commit(record.Change{Urgent: record.Word, State: func(s *state.State) { s.Retry() }}); err != nil {
			return nil, err
		}
	}
	if err := n.retrySwap(); err != nil {
		return nil, err
	}
	n.destination.Retries = true
	return n.cycle.Sync(ctx)
}

// retrySwap has what the machine did not come up with be entered again.
func (n *Node) retrySwap() error {
	found, err := n.effect.Running()
	if errors.Is(err, track.ErrNothing) || refusal.Of(err) != "" {
		return nil // nothing runs that could have been left
	}
	if err != nil {
		return err
	}
	why, err := n.operate.Engine(found).RetrySwap()
	if err == nil && why != "" {
		n.session.Record("retry", events.With("operation", spec.LayerSwapName), events.With("why", why))
	}
	return err
}

// TrialEnds returns how long a change still waits for its operator.
func (n *Node) TrialEnds() (left time.Duration, waits bool) {
	s, err := n.session.Owner.State()
	if err != nil || !n.session.Waiting(s) {
		return 0, false // the next look meets the error
	}
	return max(0, s.Trial.Left(n.session.Up())), true
}
