// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/takeover"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/spec"
)

// Prepare does what comes before a run that changes something.
func (ef *Effect) Prepare(ctx context.Context, found *track.Found) error {
	if err := ef.TakeOver(); err != nil {
		return err
	}
	ef.services.Bring(ctx, &found.Overlay)
	return nil
}

// TakeOver makes what Divingbell recorded on an attached host the journal's
// originals, before the first run changes anything. As long as the records are
// there it does so again, since a reboot in between ends what the kernel held. A
// node that is only looked at supposes them.
func (ef *Effect) TakeOver() error {
	if ef.Boot.Mode != spec.ModeAttached || ef.taken != nil {
		return nil
	}
	found, err := takeover.Look(ef.Options.Root)
	if err != nil || found == nil {
		return err
	}
	if ef.Lock != nil {
		if err := takeover.Active(ef.Path("/proc")); err != nil {
			return err
		}
	}
	entries, adoptErr := items.Adopt(ef.Items(&track.Found{Overlay: spec.Overlay{Items: found.Originals}}))
	ef.taken = found
	entries = slices.DeleteFunc(entries, func(e item.Entry) bool {
		return slices.ContainsFunc(ef.Journal.Entries(e.Item), func(k item.Entry) bool { return k.Key == e.Key })
	})
	if ef.Lock == nil {
		ef.Journal.Suppose(entries...)
		return nil
	}
	if err := ef.Journal.Record(entries...); err != nil {
		return fmt.Errorf("keep the originals that Divingbell recorded: %w", err)
	}
	for _, e := range entries {
		ef.Record("taken-over", events.With("item", e.Item), events.With("key", e.Key), events.With("original", string(e.Prior)))
	}
	for _, doubt := range found.Doubts {
		ef.Say("not taken over: %s", doubt)
	}
	if adoptErr != nil {
		ef.Say("not taken over: %v", adoptErr)
	}
	return nil
}

// past returns what Divingbell knew of scripts; nil where it left nothing.
func (ef *Effect) past() exec.Past {
	if ef.taken == nil {
		return nil
	}
	return ef.taken
}

// leaving are the files that retire takes away.
func (ef *Effect) leaving() []string {
	if ef.taken == nil {
		return nil
	}
	return ef.taken.Settings()
}

// Retire takes away what Divingbell left to be set at every boot, once a run has
// put caisson's settings and the originals in place. A script that fails is no
// reason to wait.
func (ef *Effect) Retire(ctx context.Context, result items.Result) error {
	if ef.taken == nil || ef.Lock == nil || ctx.Err() != nil {
		return nil
	}
	if ef.Boot.Live.Without != nil {
		ef.Say("what Divingbell left stays until a generation is in effect whole")
		return nil
	}
	for _, i := range result.Items {
		if i.Name != exec.Name && i.State == spec.ItemDegraded {
			ef.Say("what Divingbell left stays until %s is in order", i.Name)
			return nil
		}
	}
	found := ef.taken
	ef.taken = nil
	kept, err := found.Retire()
	if err != nil {
		return err
	}
	ef.Say("taken over from Divingbell: %s; its records are in %s", found.Summary(), kept)
	for _, what := range found.Left {
		ef.Say("left as Divingbell made them, since they need a layer: %s", what)
	}
	if ef.Runner() == nil {
		return nil // no systemd has read the units
	}
	return process.Reload(ctx)
}
