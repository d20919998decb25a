// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/kernel/apparmor"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// viewed is the node with what runs, as a look at its items has found it.
func (l *Look) viewed(found *track.Found, result items.Result) (*say.View, error) {
	s, err := l.Owner.State()
	if err != nil {
		return nil, err
	}
	v := &say.View{
		Now: time.Now(), Up: l.Up(), Agent: l.Options.Version, Recipient: l.Recipient(), Image: l.Host().ImageVersion(), BootID: l.Scopes.Kernel, RootID: l.Scopes.Root, Boot: l.Boot, State: s,
		Overlay: &found.Overlay, LeftOut: found.LeftOut, Generation: found.Generation, Expires: found.Expires, LayerVersion: l.Root.Version(found.Generation.Layer),
		Items: result.Items, Drift: result.Drift, Hints: l.hints(result.Items),
		Damage: l.Damage(), Unsaved: l.Folder.Unsaved(), Operations: l.Operations.View(found), Services: l.Services.List(&found.Overlay), Profiles: l.profiles(),
	}
	if l.Tracker != nil {
		if v.Keys = l.Tracker.Known(); v.Keys != nil {
			v.Keys.Forgets = l.Scopes.Disk == ""
		}
	}
	if s.Staged != nil {
		v.Rejected, v.Fetched = l.Destination.Rejected(*s.Staged), l.Destination.BytesOf(s.Staged.Layer)
	}
	if v.Unwell, err = l.Soak.Unwell(found); err != nil {
		return nil, err
	}
	if v.Pause, err = l.Effect.Pause(found); err != nil {
		return nil, err
	}
	if v.Cannot, err = l.Cannot(&found.Overlay); err != nil {
		return nil, err
	}
	if v.Rescue, err = l.rescue(false); err != nil {
		return nil, err
	}
	wrote := append(items.Wrote(l.Journal), l.Boot.Wrote...)
	if v.Foreign, err = say.Foreign(l.Path(cmp.Or(l.Boot.Upper, paths.RunUpper)+"/upper"), wrote); err != nil {
		return nil, err
	}
	j, err := l.Soak.Judging()
	if err != nil {
		return nil, err
	}
	if j != nil {
		v.Judged = &say.Judged{Record: j.Record, Checks: j.Checks()}
	}
	v.Staging, v.StagingSince = stage.Runs(l.Path(paths.RunStaging))
	if v.Waits() != "" {
		v.Move = l.Destination.SayMove()
	}
	return v, nil
}

// Cannot lists what an overlay asks of an attached host that needs a layer.
func (l *Look) Cannot(o *spec.Overlay) ([]spec.Drift, error) {
	if l.Boot.Mode != spec.ModeAttached {
		return nil, nil
	}
	return l.Host().Cannot(o)
}

// profiles are those of AppArmor that are not as the layer says.
func (l *Look) profiles() []spec.Drift {
	drift, err := apparmor.Check(l.Boot.Layer.AppArmor)
	if err != nil {
		drift = append(drift, spec.Drift{Item: "apparmor", Key: "profiles", Action: spec.ActionRefuse, Reason: err.Error()})
	}
	return drift
}

// hints are what tells the service of changes, by kind: where it does not run in this
// process, what it has said last.
func (l *Look) hints(kinds []spec.ItemStatus) map[string][]string {
	by := map[string][]string{}
	if l.Options.Hints != nil {
		for _, k := range kinds {
			by[k.Name] = l.Options.Hints(k.Name)
		}
		return by
	}
	for _, k := range l.Last().Items {
		by[k.Name] = k.Hints
	}
	return by
}
