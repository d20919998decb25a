// SPDX-License-Identifier: Apache-2.0

// Package say puts into words and figures what a node is: its status with the four axes,
// what is wrong with it, the trace of a boot and the report to its fleet.
//
// It decides nothing and asks nobody. Package look looks the node up as a [View], and
// everything is said of that. What else is on a machine, such as files that somebody
// changed by hand, is read below a directory that the caller names.
package say

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// View is a node at one moment.
type View struct {
	Now    time.Time     // of the wall clock
	Up     time.Duration // since this kernel started
	BootID string        // of this kernel
	RootID string        // of this root
	Image  string        // IMAGE_VERSION of this root
	Agent  string        // its version

	Recipient string // of secrets, "" where there is none
	Sealed    bool   // its key is, to the TPM

	Boot  *record.Boot // of this root, and what was noted since
	State *state.State // what is remembered over boots

	// What runs.
	Overlay      *spec.Overlay
	LeftOut      []string // paths of its keys of a later release, which do not act
	Generation   state.Generation
	Expires      time.Time // of the overlay's signature
	LayerVersion string
	Keys         *spec.KeysKnown // nil where there is no chain

	// What the last look at the items has found.
	Items []spec.ItemStatus
	Drift []spec.Drift
	Hints map[string][]string // what tells the service of changes, by kind

	Rejected   string            // why what is staged is not tried again, "" where it is
	Judged     *Judged           // nil where no change has to pass its gates
	Unwell     map[string]string // why watched checks do not hold, by name
	Pause      *spec.Hold        // nil where the node is not paused
	Operations []spec.OperationStatus
	Services   []spec.ServiceStatus
	Rescue     *spec.RescueStatus // nil where no rescue key counts and no operator was let in

	Profiles []spec.Drift // of AppArmor, that are not as the layer says
	Cannot   []spec.Drift // what needs a layer, see [Host.Cannot]
	Damage   error        // what the journal has lost
	Unsaved  error        // why what was decided is in memory only, nil where it is on the disk
	Foreign  []string     // see [Foreign]

	Staging      bool        // a layer is being fetched
	StagingSince time.Time   // zero where that is not known
	Fetched      *spec.Bytes // of the layer that waits; nil where this service fetched no part of it
	Move         string      // how the node gets to what waits, and why that way; "" where it runs already
}

// Judged is a change that has to pass its gates.
type Judged struct {
	Record gate.Record
	Checks []spec.HealthCheck
}

// Waits returns the overlay that waits for a reboot, "" where none does.
func (v *View) Waits() (overlay string) {
	if g := v.staged(); g != nil {
		overlay = g.Overlay
	}
	h, current := v.State.HoldAt(v.Now.Unix()), v.State.Current
	if v.boots() && h != nil && h.Kind != spec.HoldFreeze && current != nil && current.Overlay != v.Generation.Overlay {
		overlay = current.Overlay
	}
	return overlay
}

// staged returns the generation that the next boot is to try, nil where there is none.
func (v *View) staged() *state.Generation {
	if g := v.State.Staged; v.boots() && g != nil && !g.Pair(v.Generation) && v.Rejected == "" {
		return g
	}
	return nil
}

// boots reports whether a boot of this node can bring what is not in effect: on a host
// that caisson did not boot nothing waits for one.
func (v *View) boots() bool { return v.Boot.Mode != spec.ModeAttached }

// Status returns what a node says of itself.
func (v *View) Status() *spec.Status {
	s, live := v.State, &v.Boot.Live
	status := &spec.Status{
		APIVersion: spec.APIVersion, Kind: spec.KindStatus,
		Node: v.Overlay.Node, Fleet: v.Overlay.Fleet, Mode: v.Boot.Mode,
		Tracking: s.Tracking, Sync: v.Boot.Sync, SyncDetail: v.Boot.SyncDetail, Source: v.Boot.Source,
		Epoch: v.Generation.Epoch, Generation: v.Generation.Generation,
		Overlay: v.Generation.Overlay, Layer: v.Generation.Layer,
		RootID: v.RootID, BootID: v.BootID, Floor: s.Floor,
		Items: append([]spec.ItemStatus{}, v.Items...), Drift: append([]spec.Drift{}, v.Drift...),
		TrackingSince: state.Time(s.TrackingSince), SyncSince: state.Time(live.SyncSince), Asked: state.Time(live.Asked),
		Expires: state.Time(v.Expires.Unix()), LayerVersion: v.LayerVersion, Image: v.Image, Agent: v.Agent,
		Recipient: v.Recipient, Sealed: v.Sealed,
		Operations: v.Operations, Services: v.Services, Staged: v.Waits(), Foreign: v.Foreign, LeftOut: v.leftOut(),
		Keys: v.Keys, Rescue: v.Rescue,
	}
	for i := range status.Items {
		status.Items[i].Hints = v.Hints[status.Items[i].Name]
	}
	if v.Rejected != "" {
		status.Rejected = &spec.Rejected{Generation: s.Staged.Generation, Overlay: s.Staged.Overlay, Reason: v.Rejected,
			At: state.Time(s.Staged.FailedAt)}
	}
	if s.Trial != nil {
		status.Trial = v.trial()
	}
	if v.staged() != nil {
		status.StagedBytes = v.Fetched
	}
	if p := v.Pause; p != nil {
		status.Pause, status.PausedBy = &spec.Pause{Reason: p.Reason, Until: p.Until}, p.Author
	}
	status.Protected, status.Refused = v.protected()
	if v.boots() {
		status.ImageCheck, status.ImageCheckDetail = v.imageCheck()
	}
	status.Checks = v.checks()
	v.setTracking(status)
	v.setHealth(status)
	v.setActivity(status)
	return status
}

// leftOut returns the parts of the overlay, and of fleet:current, that do not act.
func (v *View) leftOut() []string {
	return append(slices.Clone(v.LeftOut), plain.Each(v.State.Fleet.LeftOut, func(key string) string { return "fleet:current " + key })...)
}

// trial is a change on trial, or that was undone.
func (v *View) trial() *spec.Trial {
	t := v.State.Trial
	st := &spec.Trial{Generation: t.Generation.Generation, Overlay: t.Generation.Overlay, Confirm: string(t.Confirm),
		Since: state.Time(t.Since), Undone: t.Reason}
	if t.Ends != 0 {
		st.Left = int64(max(0, t.Left(v.Up)) / time.Second)
	}
	return st
}

// checks are those of a change that is being judged.
func (v *View) checks() (list []spec.CheckStatus) {
	if v.Judged == nil {
		return nil
	}
	for _, c := range v.Judged.Checks {
		p := v.Judged.Record.Checks[c.Name]
		one := spec.CheckStatus{Name: c.Name, Holds: p.Since != 0, Failures: p.Failures, Retries: c.Retries, Detail: p.Why}
		if one.Holds {
			one.Detail = ""
		}
		list = append(list, one)
	}
	return list
}

// soaked is when the checks will have held for long enough, the zero time where one does
// not hold.
func (v *View) soaked() time.Time {
	verdict := v.Judged.Record.Judge(v.Judged.Checks)
	if verdict.Until <= 0 {
		return time.Time{}
	}
	return v.Now.Add(time.Duration(verdict.Until-int64(v.Up/time.Second)) * time.Second).UTC().Truncate(time.Second)
}

// protected are the kernel parameters of which the kernel refuses writes, and the writes
// that it refused.
func (v *View) protected() (names []string, refused []spec.RefusedWrite) {
	live := &v.Boot.Live
	if live.Protection.Trouble == "" {
		names = plain.Each(live.Protection.Keys, rules.SysctlName)
	}
	for _, r := range live.Refused {
		r.Key = rules.SysctlName(r.Key)
		refused = append(refused, r)
	}
	return names, refused
}

// setTracking says whether the node follows its fleet, and who has it keep what it has.
func (v *View) setTracking(st *spec.Status) {
	h := v.State.HoldAt(v.Now.Unix())
	switch {
	case h == nil:
		st.Tracking = spec.Following
		return
	case h.Kind != spec.HoldFreeze:
		st.Tracking = spec.Held
	}
	st.TrackingDetail, st.TrackingUntil = state.SayHold(h), state.Time(h.Until)
}

// Pause says who paused a node, why and until when.
func Pause(p *spec.Hold) string {
	text := plain.With(p.Author+" paused this node", ": ", p.Reason)
	if p.Until != 0 {
		text += fmt.Sprintf(" (until %s)", state.Time(p.Until).Format(time.RFC3339))
	}
	return text
}

// CorruptImage is the fault of an image with a block that differs from the signed one.
const CorruptImage = "a block of it is not what was signed, and reading it fails (EIO)"

// imageCheck says how images are checked.
func (v *View) imageCheck() (how spec.ImageCheck, why string) {
	if checks := v.Boot.Images; len(checks.WhenRead) == 0 || checks.Why != "" {
		return spec.ImagesAtBoot, cmp.Or(checks.Why, "the loader of this boot does not do that")
	}
	return spec.ImagesWhenRead, ""
}

// ImageName returns the name of a layer's image for people.
func ImageName(l *spec.Layer, image string) string {
	return cmp.Or(plain.First(l.Images, func(i spec.Image) bool { return i.Digest == image }).Name, digest.Hex(image))
}

// Reporting returns where a node reports to, nil where its overlay says nothing of
// reports.
func Reporting(o *spec.Overlay) (*spec.Reporting, error) {
	if o.Agent == nil || o.Agent.Report == nil {
		return nil, nil
	}
	if err := rules.Reporting(*o.Agent.Report); err != nil {
		return nil, fmt.Errorf("agent.report of the overlay: %w", err)
	}
	return o.Agent.Report, nil
}

// Report returns what a node tells its fleet of a status. m are the windows of its
// overlay, nil where it has none.
func Report(st *spec.Status, to *spec.Reporting, m *spec.Maintenance, now time.Time) *spec.Report {
	r := spec.NewReport(st)
	r.Interval, r.NextWindow = to.Interval, nextWindow(m, now)
	return r
}

// nextWindow is the one that is open, or opens first.
func nextWindow(m *spec.Maintenance, now time.Time) (next *spec.NextWindow) {
	if m == nil {
		return nil
	}
	for name, w := range m.Windows {
		i, ok := uptime.Coming(w, now)
		if ok && (next == nil || i.From.Before(next.From) || i.From.Equal(next.From) && name < next.Name) {
			next = &spec.NextWindow{Name: name, Interval: i}
		}
	}
	return next
}

// Nothing is the status of a node that cannot say what it runs; trouble says why, nil
// where it runs nothing yet.
func Nothing(b *record.Boot, fleet string, trouble error) *spec.Status {
	st := &spec.Status{Node: b.Node, Fleet: fleet, Mode: b.Mode, Health: spec.HealthOK, Sync: b.Sync, SyncDetail: b.SyncDetail}
	if trouble != nil {
		st.Health = spec.HealthDegraded
		st.Drift = []spec.Drift{{Item: "overlay", Key: "running", Action: spec.ActionRefuse, Reason: trouble.Error()}}
	}
	return st
}

// Why says what is wrong with a node of a status. events are those of its black box,
// oldest first; trouble says why they are not all of them.
func Why(st *spec.Status, b *record.Boot, events []spec.Event, trouble error) spec.Why {
	w := explain(st, events)
	w.Memory, w.Events = b.Disk == "" && b.Mode != spec.ModeAttached || b.ReadOnly, events
	if trouble != nil {
		w.Trouble = trouble.Error()
	}
	return w
}

// KeepTrace keeps the steps of a run in a file: as the first ones of this root, or else as
// the last. A trace that cannot be read is begun again, and said.
func KeepTrace(file string, steps []spec.Step, first bool, say func(format string, args ...any)) error {
	var t spec.Trace
	if first {
		t.First = steps
	} else {
		var err error
		if t, err = ReadTrace(file); err != nil {
			say("the trace of this boot starts over: %v", err)
			t = spec.Trace{}
		}
		t.Last = steps
	}
	data, err := spec.Encode(t)
	if err != nil {
		return err
	}
	return durable.WriteFile(file, data, 0o640)
}

// ReadTrace reads what KeepTrace kept, the zero value where that is nothing.
func ReadTrace(file string) (t spec.Trace, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("read trace: %w", err)
	}
	return t, nil
}
