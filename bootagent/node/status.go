// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/apparmor"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/journal"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// remember keeps the sync axis and what goes with it in the boot record.
func (n *Node) remember() error { return state.SaveBoot(n.path(paths.RunBoot), n.boot) }

// Status looks again at everything and writes nothing.
func (n *Node) Status(ctx context.Context) (*spec.Status, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	result := n.look(ctx, found, func(ctx context.Context) items.Result {
		return items.Look(ctx, n.items(found), n.guard(found))
	})
	last := n.last()
	result.Age(last.Drift, time.Now(), uptime())
	if last.Overlay == found.Generation.Overlay {
		result.Explain(last.Items, last.Drift)
	}
	return n.compose(found, result)
}

// report is the status after a run; it is kept for those who only read.
func (n *Node) report(found *track.Found, result items.Result) (*spec.Status, error) {
	if err := n.keepTrace(result.Steps); err != nil {
		return nil, err
	}
	if err := n.follow(found); err != nil {
		return nil, err
	}
	last := n.last()
	result.Age(last.Drift, time.Now(), uptime())
	n.noteImages(found.Generation)
	for said := false; ; said = true {
		status, err := n.compose(found, result)
		if err != nil {
			return nil, err
		}
		n.noteUp(status, found.Generation)
		n.count(status, last.Drift)
		n.noteAxes(status)
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
		n.o.Say("say that a reboot is waited for: %v", err)
	}
	n.noteAxes(status)
	if err := n.remember(); err != nil {
		return err
	}
	data, err := spec.Encode(status)
	if err != nil {
		return err
	}
	return durable.WriteFile(n.path(paths.RunStatus), data, 0o640)
}

func (n *Node) compose(found *track.Found, result items.Result) (*spec.Status, error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	status := &spec.Status{
		APIVersion: spec.APIVersion, Kind: spec.KindStatus,
		Node: found.Overlay.Node, Fleet: found.Overlay.Fleet, Mode: n.boot.Mode,
		Tracking: s.Tracking, Sync: n.boot.Sync, SyncDetail: n.boot.SyncDetail, Health: result.Health, Source: n.boot.Source,
		Epoch: found.Generation.Epoch, Generation: found.Generation.Generation,
		Overlay: found.Generation.Overlay, Layer: found.Generation.Layer,
		RootID: n.scopes.Root, BootID: n.scopes.Kernel, Floor: s.Floor,
		Items: result.Items, Drift: result.Drift,
		TrackingSince: stamp(s.TrackingSince), SyncSince: stamp(n.boot.Live.SyncSince), Asked: stamp(n.boot.Live.Asked),
		Expires: stamp(found.Expires.Unix()), LayerVersion: n.layerVersion(found.Generation.Layer), Image: n.imageVersion(), Agent: n.o.Version,
	}
	n.addHints(status.Items)
	refuse := func(item, key, reason string) {
		status.Health = status.Health.And(spec.HealthDegraded)
		status.Drift = append(status.Drift, spec.Drift{Item: item, Key: key, Action: spec.ActionRefuse, Reason: reason})
	}
	if status.Rejected = n.showRejected(s); status.Rejected != nil {
		refuse("overlay", fmt.Sprint("generation ", status.Rejected.Generation), "it is rejected on this node: "+status.Rejected.Reason)
	} else if back := n.boot.Live.TakenBack; back != nil {
		refuse("overlay", fmt.Sprint("generation ", back.Generation), "it was not applied: "+back.Reason)
	}
	if w := n.boot.Live.Without; w != nil && w.Overlay == found.Generation.Overlay {
		refuse("overlay", fmt.Sprint("generation ", w.Generation), "it runs without what could cut this node off: "+w.Reason)
	}
	if s.Trial != nil {
		status.Trial = shown(s.Trial)
		if !s.Trial.Pending() {
			refuse("overlay", fmt.Sprint("generation ", s.Trial.Generation.Generation), "it was undone: "+s.Trial.Reason)
		}
	}
	if a := found.Overlay.Agent; a != nil && a.Poll != 0 {
		if err := rules.Poll(a.Poll); err != nil { // the usual time holds
			refuse("agent", "poll", err.Error())
		}
	}
	if err := n.damage(); err != nil {
		refuse("journal", journal.Damaged, err.Error())
	}
	status.Operations = n.view(found)
	for _, o := range status.Operations {
		if o.State == spec.OperationFailed || o.State == spec.OperationCannot {
			refuse("operation", o.Name, o.Detail)
		}
	}
	status.Services = n.services(&found.Overlay)
	boots := n.boot.Mode != spec.ModeAttached // what is not in effect waits for a reboot
	if boots && s.Staged != nil && !s.Staged.Pair(found.Generation) && status.Rejected == nil {
		status.Staged, status.StagedBytes = s.Staged.Overlay, n.bytesOf(s.Staged.Layer)
	}
	if p, err := n.pause(found); err != nil {
		return nil, err
	} else if p != nil {
		status.Pause, status.PausedBy = &spec.Pause{Reason: p.Reason, Until: p.Until}, p.Author
	}
	if h := s.HoldAt(time.Now().Unix()); h != nil {
		if h.Kind != spec.HoldFreeze {
			status.Tracking = spec.Held
			if boots && s.Current != nil && s.Current.Overlay != found.Generation.Overlay {
				status.Staged = s.Current.Overlay
			}
		}
		status.TrackingDetail, status.TrackingUntil = track.SayHold(h), stamp(h.Until)
	} else {
		status.Tracking = spec.Following
	}
	policy, err := apparmor.Check(n.boot.Layer.AppArmor)
	if err != nil {
		policy = append(policy, spec.Drift{Item: "apparmor", Key: "profiles", Action: spec.ActionRefuse, Reason: err.Error()})
	}
	if len(policy) > 0 {
		status.Health = status.Health.And(spec.HealthDegraded)
		status.Drift = append(status.Drift, policy...)
	}
	cannot, err := n.cannot(&found.Overlay)
	if err != nil {
		return nil, err
	}
	status.Drift = append(status.Drift, cannot...)
	if trouble := n.boot.Live.MetricsTrouble; trouble != "" {
		refuse("agent", "metrics", trouble)
	}
	if trouble := n.boot.Live.Protection.Trouble; trouble != "" {
		refuse("agent", "protect", trouble)
	}
	status.Protected, status.Refused = n.protected()
	for _, trouble := range n.boot.DiskTrouble {
		refuse("state", "disk", trouble)
	}
	n.showImages(status, refuse)
	for _, lost := range s.Lost {
		refuse("state", "lost", lost)
	}
	if status.Foreign, err = n.foreign(); err != nil {
		return nil, err
	}
	if status.Drift == nil {
		status.Drift = []spec.Drift{}
	}
	if status.Items == nil {
		status.Items = []spec.ItemStatus{}
	}
	until, err := n.showGates(status)
	if err != nil {
		return nil, err
	}
	n.setActivity(status, until)
	n.setHealth(status)
	return status, nil
}

// imageVersion is IMAGE_VERSION of the running root's os-release(5), "" where it has
// none: the handover of a node that caisson boots writes the layer's.
func (n *Node) imageVersion() string {
	text, err := os.ReadFile(n.path("/etc/os-release"))
	if err != nil {
		return ""
	}
	version := ""
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "IMAGE_VERSION="); ok {
			version = strings.Trim(value, `"'`) // the last one counts, as in a shell
		}
	}
	return version
}
