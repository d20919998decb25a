// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// viewed is the node with what runs, as a look at its items has found it.
func (l *Look) viewed(found *track.Found, result items.Result) (*say.View, error) {
	now, err := l.Owner.Read()
	if err != nil {
		return nil, err
	}
	s, boot, ef := now.State, now.Boot, l.Effect
	v := &say.View{
		Now: time.Now(), Up: l.Effect.Clock.Up(), Agent: l.Agent,
		Image: l.host().ImageVersion(), BootID: ef.Scopes.Kernel, RootID: ef.Scopes.Root, Boot: boot, State: s,
		Overlay: &found.Overlay, LeftOut: found.LeftOut, Generation: found.Generation, Expires: found.Expires,
		LayerVersion: ef.Root.Version(found.Generation.Layer),
		Items:        result.Items, Drift: result.Drift, Hints: l.hints(result.Items),
		Damage: l.Node.Damage(), Unsaved: ef.Folder.Unsaved(), Operations: l.Operations.View(found),
		Services: ef.Services.List(&found.Overlay), Profiles: profiles(boot),
	}
	v.Recipient, v.Sealed = l.Node.Recipient()
	if l.Tracker != nil {
		if v.Keys = l.Tracker.Known(); v.Keys != nil {
			v.Keys.Forgets = ef.Scopes.Disk == ""
		}
	}
	if s.Staged != nil {
		v.Rejected, v.Fetched = l.Destination.Rejected(*s.Staged), l.Destination.BytesOf(s.Staged.Layer)
	}
	if v.Unwell, err = l.Soak.Unwell(found); err != nil {
		return nil, err
	}
	if v.Pause, err = ef.Pause(found); err != nil {
		return nil, err
	}
	if v.Cannot, err = l.cannot(&found.Overlay); err != nil {
		return nil, err
	}
	if v.Rescue, err = l.rescue(false); err != nil {
		return nil, err
	}
	wrote := append(items.Wrote(ef.Journal), boot.Wrote...)
	if v.Foreign, err = say.Foreign(l.Effect.Path(cmp.Or(boot.Upper, paths.RunUpper)+"/upper"), wrote); err != nil {
		return nil, err
	}
	j, err := l.Soak.Judging()
	if err != nil {
		return nil, err
	}
	if j != nil {
		v.Judged = &say.Judged{Record: j.Record, Checks: j.Checks()}
	}
	v.Staging, v.StagingSince = stage.Runs(l.Effect.Path(paths.RunStaging))
	if v.Waits() != "" {
		v.Move = l.Destination.SayMove(found)
	}
	return v, nil
}

// cannot lists what an overlay asks of an attached host that needs a layer.
func (l *Look) cannot(o *spec.Overlay) ([]spec.Drift, error) {
	if l.Owner.Boot().Mode != spec.ModeAttached {
		return nil, nil
	}
	return l.host().Cannot(o)
}

// profiles are those of AppArmor that are not as the layer says.
func profiles(b *record.Boot) []spec.Drift {
	drift, err := root.CheckProfiles(b.Layer.AppArmor)
	if err != nil {
		drift = append(drift, spec.Drift{Item: "apparmor", Key: "profiles", Action: spec.ActionRefuse, Reason: err.Error()})
	}
	return drift
}

// hints returns the sources that tell the service of changes, by kind: where it does not run in
// this process, those it has named last.
func (l *Look) hints(kinds []spec.ItemStatus) map[string][]string {
	by := map[string][]string{}
	if l.Hints != nil {
		for _, k := range kinds {
			by[k.Name] = l.Hints(k.Name)
		}
		return by
	}
	for _, k := range l.Effect.Last().Items {
		by[k.Name] = k.Hints
	}
	return by
}

// rescue is who is let in, with the code where root is shown it; nil where no rescue key counts
// and no operator was let in.
func (l *Look) rescue(code bool) (*spec.RescueStatus, error) {
	b, err := rescue.Read(l.Effect.Dir, l.Effect.Scopes.Kernel)
	if err != nil {
		return nil, err
	}
	counts := false
	if l.Tracker != nil {
		keys, err := l.Tracker.RescueKeys()
		counts = err == nil && len(keys.Keys) > 0 // the service says the error
	}
	if !counts && b.Open == nil && b.Times == 0 {
		return nil, nil
	}
	s := b.Status(l.Effect.Clock.Up())
	if code && counts {
		s.Code = b.Code
	}
	return s, nil
}

// noteImages asks the kernel what it has met in the images that it checks while they are
// read. The next boot need not read those in which it found nothing wrong; the others it
// reads, and fetches again where their files differ.
func (l *Look) noteImages(g state.Generation) {
	boot := l.Owner.Boot()
	live := &boot.Live
	if len(boot.Images.WhenRead) == 0 || !l.Effect.Alone {
		return
	}
	corrupt, err := l.Node.Corrupt()
	if err != nil {
		l.Effect.Log.Say("ask the kernel about the images: %v", err)
		return
	}
	var sound []string
	for _, image := range boot.Images.WhenRead {
		switch {
		case slices.Contains(live.Corrupt, image):
		case slices.Contains(corrupt, image):
			live.Corrupt = append(live.Corrupt, image)
			name := say.ImageName(&boot.Layer, image)
			why := fmt.Sprintf("image %s (%s): %s", name, image, say.CorruptImage)
			l.Effect.Log.Say("%s", why)
			l.Effect.Log.Note(g, nil, spec.Event{Event: spec.EventCorrupt, Item: "image", Key: name, Errno: "EIO", Why: why,
				Did: "goes on, and has the next boot read all of it"})
		default:
			sound = append(sound, image)
		}
	}
	l.Owner.Remember(func(l *record.Live) { l.Corrupt = live.Corrupt })
	if slices.Equal(sound, live.Sound) {
		return
	}
	store, err := l.Destination.Store()
	if err == nil {
		err = store.KeepSound(sound)
	}
	if err != nil {
		l.Effect.Log.Say("the next boot reads all images: %v", err)
		return
	}
	l.Owner.Remember(func(l *record.Live) { l.Sound = sound })
}

// Units is the systemd that runs the node.
type Units interface {
	// Times says when a unit began to start and when it was there, by the kernel's clock; 0 is not yet.
	Times(ctx context.Context, unit string) (began, there time.Duration, err error)
}

// brokenOrders says of which mounts the order of their before and after did not hold in this boot.
// What has not begun by now waits for the agent, as it is to.
func (l *Look) brokenOrders(mounts []spec.Mount) (broken []string) {
	if l.Units == nil {
		return nil
	}
	left := time.Duration(0)
	times := func(unit string) (began, there time.Duration) {
		began, there, err := l.Units.Times(context.Background(), unit) // which has a deadline of its own
		if err != nil {
			l.Effect.Log.Say("when %s was started is not known: %v", unit, err)
		}
		if began < left {
			return 0, 0
		}
		return began, there
	}
	left, _ = times("umount.target") // systemd keeps over a soft-reboot when units began in the root before
	for _, m := range mounts {
		if len(m.Before)+len(m.After) == 0 {
			continue
		}
		_, mounted := times(units.MountUnit(m.Target))
		if mounted == 0 {
			continue // which the look itself reports
		}
		for _, unit := range m.Before {
			if began, _ := times(unit); began != 0 && began < mounted {
				broken = append(broken, fmt.Sprintf("%s began %v before %s was mounted", unit, (mounted-began).Round(time.Millisecond), m.Target))
			}
		}
		for _, unit := range m.After {
			if began, there := times(unit); began != 0 && (there == 0 || there > mounted) {
				broken = append(broken, fmt.Sprintf("%s was not there when %s was mounted", unit, m.Target))
			}
		}
	}
	return broken
}
