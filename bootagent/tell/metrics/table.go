// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// The states of each axis; one that has a name after a colon counts as what is
// before it, for names are without number.
var (
	trackings  = []string{"following", "held", "frozen"}
	syncs      = []string{"current", "behind", "unreachable", "expired", "unconfirmed", "refused"}
	healths    = []string{"ok", "degraded", "broken", "quarantined"}
	activities = []string{"idle", "staging", "waiting", "running", "soaking"}
	operations = []string{"scheduled", "waiting", "running", "done", "failed", "cannot"}
)

func kind(state string) string { before, _, _ := strings.Cut(state, ":"); return before }

// table is the one list of series.
var table = []Family{
	{"caisson_node_info", "gauge", []string{"node", "fleet", "mode", "agent", "layer"},
		"Who this node is, the versions of its agent and of its layer. Always 1.", func(f *Facts, put put) {
			s := f.Status
			put(1, s.Node, s.Fleet, string(s.Mode), s.Agent, s.LayerVersion)
		}},
	{"caisson_look_timestamp_seconds", "gauge", nil, "When the node was last checked: these figures are from then.",
		func(f *Facts, put put) { at(put, f.Now) }},
	{"caisson_artifact_info", "gauge", []string{"slot", "digest"},
		"What the node runs: one series for its overlay, one for its layer. Always 1.", func(f *Facts, put put) {
			put(1, "overlay", f.Status.Overlay)
			if f.Status.Layer != "" {
				put(1, "layer", f.Status.Layer)
			}
		}},
	{"caisson_artifact_changed_timestamp_seconds", "gauge", []string{"slot"}, "Since when the node runs what it runs.",
		func(f *Facts, put put) {
			for _, slot := range slices.Sorted(maps.Keys(f.Counts.Artifacts)) {
				put(float64(f.Counts.Artifacts[slot].Since), slot)
			}
		}},
	{"caisson_generation", "gauge", nil, "Generation of the overlay that the node runs.",
		func(f *Facts, put put) { put(float64(f.Status.Generation)) }},
	{"caisson_epoch", "gauge", nil, "Epoch of the overlay that the node runs.", func(f *Facts, put put) { put(float64(f.Status.Epoch)) }},
	{"caisson_overlay_expires_timestamp_seconds", "gauge", nil, "When the overlay's signature expires.",
		func(f *Facts, put put) { at(put, f.Status.Expires) }},
	{"caisson_staged", "gauge", nil, "1 while an overlay waits for a reboot.",
		func(f *Facts, put put) { put(boolean(f.Status.Staged != "")) }},
	{"caisson_tracking_state", "gauge", []string{"state"}, "Whether the node takes newer generations; one state is 1.",
		func(f *Facts, put put) {
			oneOf(put, string(f.Status.Tracking), trackings)
		}},
	{"caisson_sync_state", "gauge", []string{"state"},
		"How what the node runs compares with what the registry has; one state is 1.", func(f *Facts, put put) {
			oneOf(put, kind(string(f.Status.Sync)), syncs)
		}},
	{"caisson_health_state", "gauge", []string{"state"}, "Whether the node is as its overlay says; one state is 1.", func(f *Facts, put put) {
		oneOf(put, string(f.Status.Health), healths)
	}},
	{"caisson_activity_state", "gauge", []string{"state"}, "What the node is doing; one state is 1.", func(f *Facts, put put) {
		oneOf(put, kind(string(f.Status.Activity)), activities)
	}},
	{"caisson_state_changed_timestamp_seconds", "gauge", []string{"axis"},
		"Since when tracking, sync, health and activity are as they are.", func(f *Facts, put put) {
			axes := f.Status.Axes()
			at(put, axes.Tracking.Since, "tracking")
			at(put, axes.Sync.Since, "sync")
			at(put, axes.Health.Since, "health")
			at(put, axes.Activity.Since, "activity")
		}},
	{"caisson_waiting_reason", "gauge", []string{"reason"},
		"What the node waits for, as in its activity: resume, confirm, reboot, window, slot, the name of an operation. " +
			"Always 1, and absent when it does not wait.", func(f *Facts, put put) {
			if reason, waits := strings.CutPrefix(string(f.Status.Activity), string(spec.ActivityWaiting(""))); waits {
				put(1, reason)
			}
		}},
	{"caisson_paused", "gauge", nil, "1 while the fleet has paused this node: drift is reported and stays.",
		func(f *Facts, put put) { put(boolean(f.Status.Pause != nil)) }},
	{"caisson_ask_timestamp_seconds", "gauge", nil, "When the registry was asked last, with any result.",
		func(f *Facts, put put) { at(put, f.Status.Asked) }},
	{"caisson_last_verify_timestamp_seconds", "gauge", nil,
		"When the registry last gave an overlay and a signature that hold.", func(f *Facts, put put) {
			if f.Counts.Verified > 0 {
				put(float64(f.Counts.Verified))
			}
		}},
	{"caisson_fetch_total", "counter", []string{"result"},
		"How often the registry was asked since this machine started, by result.", func(f *Facts, put put) {
			for _, result := range []string{"ok", "refused", "unreachable"} {
				put(float64(f.Counts.Fetches[result]), result)
			}
		}},
	{"caisson_transitions_total", "counter", []string{"transition"},
		"How often this node made a transition that changed something since this machine started, by its name in " +
			"docs/decisions.md. One that it never made has no series.", func(f *Facts, put put) {
			for _, name := range slices.Sorted(maps.Keys(f.Counts.Transitions)) {
				put(float64(f.Counts.Transitions[name]), name)
			}
		}},
	{"caisson_settings", "gauge", []string{"kind"}, "Settings of a kind that are as the overlay says.", func(f *Facts, put put) {
		for _, i := range f.Status.Items {
			put(float64(i.Applied), i.Name)
		}
	}},
	{"caisson_drift", "gauge", []string{"kind"}, "Settings of a kind that are not as the overlay says, what is waited " +
		"for and what this host cannot have left out.", func(f *Facts, put put) {
		perKind(f, put, func(d spec.Drift) bool { return d.Action != spec.ActionDefer && d.Action != spec.ActionCannot })
	}},
	{"caisson_deferred", "gauge", []string{"kind"}, "Settings of a kind that wait for an interface, a module or a path.",
		func(f *Facts, put put) {
			perKind(f, put, func(d spec.Drift) bool { return d.Action == spec.ActionDefer })
		}},
	{"caisson_quarantined", "gauge", []string{"kind"},
		"Settings of a kind that are not corrected any more, because something keeps changing them.", func(f *Facts, put put) {
			perKind(f, put, func(d spec.Drift) bool { return d.Action == spec.ActionQuarantine })
		}},
	{"caisson_drift_total", "counter", []string{"kind"},
		"How often a setting of a kind was found changed since this machine started.", func(f *Facts, put put) {
			for _, i := range f.Status.Items {
				put(float64(f.Counts.Drift[i.Name]), i.Name)
			}
		}},
	{"caisson_corrections_total", "counter", []string{"kind"},
		"How often a setting of a kind was corrected since this machine started.", func(f *Facts, put put) {
			for _, i := range f.Status.Items {
				put(float64(f.Counts.Corrections[i.Name]), i.Name)
			}
		}},
	{"caisson_rescue_open", "gauge", nil, "1 while access is open by a rescue statement.", func(f *Facts, put put) {
		put(boolean(f.Status.Rescue != nil && f.Status.Rescue.Open))
	}},
	{"caisson_rescue_total", "counter", []string{"result"},
		"Rescue statements since this machine started: obeyed, or for a code that it did not show.", func(f *Facts, put put) {
			r := cmp.Or(f.Status.Rescue, new(spec.RescueStatus))
			put(float64(r.Times), "obeyed")
			put(float64(r.Wrong), "wrong-code")
		}},
	{"caisson_service_info", "gauge", []string{"service", "commit"},
		"The commit of a service that the node keeps to. Always 1.", func(f *Facts, put put) {
			for _, v := range f.Status.Services {
				put(1, v.Name, v.Commit)
			}
		}},
	{"caisson_window_open", "gauge", []string{"window"}, "1 while a maintenance window is open.", func(f *Facts, put put) {
		eachWindow(f, func(name string, w spec.Window) {
			put(boolean(slices.ContainsFunc(w.Intervals, func(i spec.Interval) bool { return !f.Now.Before(i.From) && f.Now.Before(i.To) })), name)
		})
	}},
	{"caisson_window_next_timestamp_seconds", "gauge", []string{"window"},
		"When a maintenance window opens next; absent where that is not known.", func(f *Facts, put put) {
			eachWindow(f, func(name string, w spec.Window) {
				if next, known := uptime.Next(w, f.Now); known {
					at(put, next, name)
				}
			})
		}},
	{"caisson_schedule_horizon_timestamp_seconds", "gauge", nil,
		"Up to when windows and times are known: the site has to be published again before.", func(f *Facts, put put) {
			if f.Maintenance != nil {
				at(put, f.Maintenance.Horizon)
			}
		}},
	{"caisson_slot_held", "gauge", []string{"group"},
		"1 while the node holds a slot of a group: one of its operations has its turn, or failed in it.", func(f *Facts, put put) {
			held := map[string]bool{}
			if f.Maintenance != nil {
				for group := range f.Maintenance.Slots {
					held[group] = false
				}
			}
			for _, o := range f.Status.Operations {
				if o.Slot != "" {
					held[o.Slot] = true
				}
			}
			for _, group := range slices.Sorted(maps.Keys(held)) {
				put(boolean(held[group]), group)
			}
		}},
	{"caisson_operation_state", "gauge", []string{"operation", "state"}, "State of an operation; one is 1.", func(f *Facts, put put) {
		for _, o := range f.Status.Operations {
			oneOf(put, string(o.State), operations, o.Name)
		}
	}},
	{"caisson_operation_changed_timestamp_seconds", "gauge", []string{"operation"},
		"When an operation last began or ended.", func(f *Facts, put put) {
			for _, o := range f.Status.Operations {
				at(put, o.Since, o.Name)
			}
		}},
	{"caisson_operation_next_timestamp_seconds", "gauge", []string{"operation"},
		"When an operation runs next; absent where that is not known.", func(f *Facts, put put) {
			for _, o := range f.Status.Operations {
				at(put, o.Next, o.Name)
			}
		}},
	{"caisson_operation_missed", "gauge", []string{"operation"}, "Times of an operation at which it did not run.", func(f *Facts, put put) {
		for _, o := range f.Status.Operations {
			put(float64(o.Missed), o.Name)
		}
	}},
}

// perKind puts how many drifts of each kind there are, 0 for a kind without.
func perKind(f *Facts, put put, counts func(spec.Drift) bool) {
	of := plain.Map(f.Status.Items, func(i spec.ItemStatus) (string, int) { return i.Name, 0 })
	for _, d := range f.Status.Drift {
		if counts(d) {
			of[d.Item]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		put(float64(of[name]), name)
	}
}

func eachWindow(f *Facts, do func(name string, w spec.Window)) {
	if f.Maintenance == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.Maintenance.Windows)) {
		do(name, f.Maintenance.Windows[name])
	}
}
