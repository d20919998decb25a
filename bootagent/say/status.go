// SPDX-License-Identifier: Apache-2.0

package say

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/journal"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/trial"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Status returns what a node says of itself.
func (v *View) Status() *spec.Status {
	s, live := v.State, &v.Boot.Live
	status := &spec.Status{
		APIVersion: spec.APIVersion, Kind: spec.KindStatus,
		Node: v.Overlay.Node, Fleet: v.Overlay.Fleet, Mode: v.Boot.Mode,
		Tracking: s.Tracking, Sync: v.Boot.Sync, SyncDetail: v.Boot.SyncDetail, Health: v.Health, Source: v.Boot.Source,
		Epoch: v.Generation.Epoch, Generation: v.Generation.Generation,
		Overlay: v.Generation.Overlay, Layer: v.Generation.Layer,
		RootID: v.RootID, BootID: v.BootID, Floor: s.Floor,
		Items: append([]spec.ItemStatus{}, v.Items...), Drift: append([]spec.Drift{}, v.Drift...),
		TrackingSince: state.Time(s.TrackingSince), SyncSince: state.Time(live.SyncSince), Asked: state.Time(live.Asked),
		Expires: state.Time(v.Expires.Unix()), LayerVersion: v.LayerVersion, Image: v.Image, Agent: v.Agent,
		Operations: v.Operations, Services: v.Services, Staged: v.Waits(), Foreign: v.Foreign,
	}
	for i := range status.Items {
		status.Items[i].Hints = v.Hints[status.Items[i].Name]
	}
	refuse := func(item, key, reason string) {
		status.Health = status.Health.And(spec.HealthDegraded)
		status.Drift = append(status.Drift, spec.Drift{Item: item, Key: key, Action: spec.ActionRefuse, Reason: reason})
	}
	if v.Rejected != "" {
		status.Rejected = &spec.Rejected{Generation: s.Staged.Generation, Overlay: s.Staged.Overlay, Reason: v.Rejected, At: state.Time(s.Staged.FailedAt)}
		refuse("overlay", fmt.Sprint("generation ", s.Staged.Generation), "it is rejected on this node: "+v.Rejected)
	} else if back := live.TakenBack; back != nil {
		refuse("overlay", fmt.Sprint("generation ", back.Generation), "it was not applied: "+back.Reason)
	}
	if w := live.Without; w != nil && w.Overlay == v.Generation.Overlay {
		refuse("overlay", fmt.Sprint("generation ", w.Generation), "it runs without what could cut this node off: "+w.Reason)
	}
	if s.Trial != nil {
		status.Trial = v.trial()
		if !s.Trial.Pending() {
			refuse("overlay", fmt.Sprint("generation ", s.Trial.Generation.Generation), "it was undone: "+s.Trial.Reason)
		}
	}
	if a := v.Overlay.Agent; a != nil && a.Poll != 0 {
		if err := rules.Poll(a.Poll); err != nil { // the usual time holds
			refuse("agent", "poll", err.Error())
		}
	}
	if v.Damage != nil {
		refuse("journal", journal.Damaged, v.Damage.Error())
	}
	for _, o := range status.Operations {
		if o.State == spec.OperationFailed || o.State == spec.OperationCannot {
			refuse("operation", o.Name, o.Detail)
		}
	}
	if v.staged() != nil {
		status.StagedBytes = v.Fetched
	}
	if p := v.Pause; p != nil {
		status.Pause, status.PausedBy = &spec.Pause{Reason: p.Reason, Until: p.Until}, p.Author
	}
	v.setTracking(status)
	if len(v.Profiles) > 0 {
		status.Health = status.Health.And(spec.HealthDegraded)
		status.Drift = append(status.Drift, v.Profiles...)
	}
	status.Drift = append(status.Drift, v.Cannot...)
	if trouble := live.MetricsTrouble; trouble != "" {
		refuse("agent", "metrics", trouble)
	}
	if trouble := live.Protection.Trouble; trouble != "" {
		refuse("agent", "protect", trouble)
	}
	status.Protected, status.Refused = v.protected()
	for _, trouble := range v.Boot.DiskTrouble {
		refuse("state", "disk", trouble)
	}
	v.setImages(status, refuse)
	for _, lost := range s.Lost {
		refuse("state", "lost", lost)
	}
	until := v.setChecks(status)
	v.setActivity(status, until)
	v.setHealth(status)
	return status
}

// trial is a change on trial, or that was undone.
func (v *View) trial() *spec.Trial {
	t := v.State.Trial
	st := &spec.Trial{Generation: t.Generation.Generation, Overlay: t.Generation.Overlay, Confirm: string(t.Confirm), Since: state.Time(t.Since), Undone: t.Reason}
	if t.Ends != 0 {
		st.Left = int64(max(0, trial.Left(t, v.Up)) / time.Second)
	}
	return st
}

// setChecks adds the checks of a change that is being judged, and returns when they
// will have held for long enough.
func (v *View) setChecks(st *spec.Status) (until time.Time) {
	if v.Judged == nil {
		return time.Time{}
	}
	for _, c := range v.Judged.Checks {
		p := v.Judged.Record.Checks[c.Name]
		one := spec.CheckStatus{Name: c.Name, Holds: p.Since != 0, Failures: p.Failures, Retries: c.Retries, Detail: p.Why}
		if one.Holds {
			one.Detail = ""
		}
		st.Checks = append(st.Checks, one)
	}
	if stuck := v.Boot.Live.Stuck; stuck != "" {
		st.Health = spec.HealthBroken
		st.Drift = append(st.Drift, spec.Drift{Item: "gates", Key: fmt.Sprint("generation ", st.Generation), Action: spec.ActionRefuse,
			Reason: "it did not pass its gates, and there is nothing to go back to: " + stuck})
	}
	if j := v.Judged.Record.Judge(v.Judged.Checks); j.Until > 0 {
		until = v.Now.Add(time.Duration(j.Until-int64(v.Up/time.Second)) * time.Second).UTC().Truncate(time.Second)
	}
	return until
}

// protected are the kernel parameters of which the kernel refuses writes, and the writes
// that it refused.
func (v *View) protected() (names []string, refused []spec.RefusedWrite) {
	live := &v.Boot.Live
	if live.Protection.Trouble == "" {
		for _, key := range live.Protection.Keys {
			names = append(names, rules.SysctlName(key))
		}
	}
	for _, r := range live.Refused {
		r.Key = rules.SysctlName(r.Key)
		refused = append(refused, r)
	}
	return names, refused
}
