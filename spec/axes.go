// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

// Axes are the four respects in which a node stands somewhere, each by itself: a
// node may be frozen, behind, ok and idle at once. Status and reports have them.
type Axes struct {
	Tracking Axis `json:"tracking"` // one of the Tracking constants
	Sync     Axis `json:"sync"`     // one of the Sync constants, or refused:CODE
	Health   Axis `json:"health"`   // one of the Health constants
	Activity Axis `json:"activity"` // one of the Activity constants, waiting:WHAT or running:OPERATION
}

// Axis is one of them.
type Axis struct {
	State  string    `json:"state"`
	Detail string    `json:"detail,omitempty"` // why it is so
	Since  time.Time `json:"since,omitzero"`   // unknown when zero
	Until  time.Time `json:"until,omitzero"`   // when it ends by itself; zero where it does not
}

// Axes returns where the node of a status stands.
func (s *Status) Axes() Axes {
	return Axes{
		Tracking: Axis{State: string(s.Tracking), Detail: s.TrackingDetail, Since: s.TrackingSince, Until: s.TrackingUntil},
		Sync:     Axis{State: string(s.Sync), Detail: s.SyncDetail, Since: s.SyncSince},
		Health:   Axis{State: string(s.Health), Detail: s.HealthDetail, Since: s.HealthSince},
		Activity: Axis{State: string(s.Activity), Detail: s.ActivityDetail, Since: s.ActivitySince, Until: s.ActivityUntil},
	}
}

// Activity is what a node is at.
type Activity string

// Values of the activity axis, besides [ActivityWaiting] and [ActivityRunning].
const (
	ActivityIdle    Activity = "idle"
	ActivityStaging Activity = "staging" // it fetches a layer for its next boot
	ActivitySoaking Activity = "soaking" // a change has to pass its gates yet
)

// ActivityWaiting is the activity of a node that has something to do and may not
// yet; what is resume, reboot, or one of the For constants of an operation that waits.
func ActivityWaiting(what string) Activity { return Activity("waiting:" + what) }

// ActivityRunning is the activity of a node that runs an operation.
func ActivityRunning(operation string) Activity { return Activity("running:" + operation) }
