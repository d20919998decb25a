// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/apparmor"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// remember keeps the sync axis and what goes with it in the boot record.
func (n *Node) remember() error { return state.SaveBoot(n.path(paths.RunBoot), n.boot) }

// Status looks again at everything and writes nothing.
func (n *Node) Status(ctx context.Context) (*spec.Status, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	result := n.lookAt(ctx, found, func(ctx context.Context) items.Result {
		return items.Look(ctx, n.items(found), n.guard(found))
	})
	last := n.last()
	result.Age(last.Drift, time.Now(), n.up())
	if last.Overlay == found.Generation.Overlay {
		result.Explain(last.Items, last.Drift)
	}
	v, err := n.viewed(found, result)
	if err != nil {
		return nil, err
	}
	return v.Status(), nil
}

// report is the status after a run; it is kept for those who only read.
func (n *Node) report(found *track.Found, result items.Result) (*spec.Status, error) {
	if err := say.KeepTrace(n.path(paths.RunTrace), result.Steps, !n.begun(), n.say); err != nil {
		return nil, err
	}
	if err := n.follow(found); err != nil {
		return nil, err
	}
	last := n.last()
	result.Age(last.Drift, time.Now(), n.up())
	n.noteImages(found.Generation)
	v, err := n.viewed(found, result)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		status := v.Status()
		n.noteUp(status, found.Generation)
		n.count(status, last.Drift)
		say.NoteAxes(&n.boot.Live, status, time.Now())
		trouble := ""
		if err := n.publishMetrics(found, status); err != nil {
			trouble = err.Error()
		}
		if said || trouble == n.boot.Live.MetricsTrouble {
			return status, n.keep(status)
		}
		n.boot.Live.MetricsTrouble, last = trouble, *status // which the status is to say, too
	}
}

// last is the status after the last run, the zero one when there was none.
func (n *Node) last() spec.Status {
	var last spec.Status
	data, err := os.ReadFile(n.path(paths.RunStatus))
	if err != nil || json.Unmarshal(data, &last) != nil {
		return spec.Status{}
	}
	return last
}

func (n *Node) keep(status *spec.Status) error {
	if err := n.markReboot(); err != nil {
		n.say("say that a reboot is waited for: %v", err)
	}
	if len(status.LeftOut) > 0 && n.last().Overlay != status.Overlay {
		n.say("generation %d: %s", status.Generation, spec.LeftOut(status.LeftOut))
	}
	say.NoteAxes(&n.boot.Live, status, time.Now())
	if err := n.remember(); err != nil {
		return err
	}
	data, err := spec.Encode(status)
	if err != nil {
		return err
	}
	return durable.WriteFile(n.path(paths.RunStatus), data, 0o640)
}

// viewed is the node with what runs, as a look at its items has found it.
func (n *Node) viewed(found *track.Found, result items.Result) (*say.View, error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	v := &say.View{
		Now: time.Now(), Up: n.up(), Agent: n.o.Version, Image: n.host().ImageVersion(), BootID: n.scopes.Kernel, RootID: n.scopes.Root, Boot: n.boot, State: s,
		Overlay: &found.Overlay, LeftOut: found.LeftOut, Generation: found.Generation, Expires: found.Expires, LayerVersion: n.layerVersion(found.Generation.Layer),
		Items: result.Items, Drift: result.Drift, Hints: n.hints(result.Items),
		Damage: n.damage(), Unsaved: n.folder.Unsaved(), Operations: n.view(found), Services: n.services(&found.Overlay), Profiles: n.profiles(),
	}
	if s.Staged != nil {
		v.Rejected, v.Fetched = n.rejected(*s.Staged), n.bytesOf(s.Staged.Layer)
	}
	if v.Unwell, err = n.unwell(found); err != nil {
		return nil, err
	}
	if v.Pause, err = n.pause(found); err != nil {
		return nil, err
	}
	if v.Cannot, err = n.cannot(&found.Overlay); err != nil {
		return nil, err
	}
	wrote := append(items.Wrote(n.journal), n.boot.Wrote...)
	if v.Foreign, err = say.Foreign(n.path(cmp.Or(n.boot.Upper, paths.RunUpper)+"/upper"), wrote); err != nil {
		return nil, err
	}
	j, err := n.judging()
	if err != nil {
		return nil, err
	}
	if j != nil {
		v.Judged = &say.Judged{Record: j.record, Checks: j.checks()}
	}
	v.Staging, v.StagingSince = stage.Runs(n.path(paths.RunStaging))
	if v.Waits() != "" {
		v.Move = n.sayMove()
	}
	return v, nil
}

// host is the machine below this node's root.
func (n *Node) host() say.Host { return say.Host{Root: n.o.Root} }

// cannot lists what an overlay asks of an attached host that needs a layer.
func (n *Node) cannot(o *spec.Overlay) ([]spec.Drift, error) {
	if n.boot.Mode != spec.ModeAttached {
		return nil, nil
	}
	return n.host().Cannot(o)
}

// profiles are those of AppArmor that are not as the layer says.
func (n *Node) profiles() []spec.Drift {
	drift, err := apparmor.Check(n.boot.Layer.AppArmor)
	if err != nil {
		drift = append(drift, spec.Drift{Item: "apparmor", Key: "profiles", Action: spec.ActionRefuse, Reason: err.Error()})
	}
	return drift
}

// hints are what tells the service of changes, by kind: where it does not run in this
// process, what it has said last.
func (n *Node) hints(kinds []spec.ItemStatus) map[string][]string {
	by := map[string][]string{}
	if n.o.Hints != nil {
		for _, k := range kinds {
			by[k.Name] = n.o.Hints(k.Name)
		}
		return by
	}
	for _, k := range n.last().Items {
		by[k.Name] = k.Hints
	}
	return by
}

// Trace says how long the steps took that made this node as it is.
func (n *Node) Trace() (*spec.Trace, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	return n.trace(found)
}

func (n *Node) trace(found *track.Found) (*spec.Trace, error) {
	t, err := say.ReadTrace(n.path(paths.RunTrace))
	if err != nil {
		return nil, err
	}
	t.Node, t.BootID, t.Boot = found.Overlay.Node, n.scopes.Kernel, n.boot.Trace
	t.Started = time.Now().Add(-n.up()).UTC().Truncate(time.Second)
	return &t, nil
}
