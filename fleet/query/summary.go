// SPDX-License-Identifier: Apache-2.0

package query

import (
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
)

// Summary is what GET /v1/summary answers.
type Summary struct {
	hub.Fleet
	view.Summary
	Rollouts     []rollout.Brief `json:"rollouts"`               // that have not ended, or did within a day; the newest first
	SiteTrouble  string          `json:"siteTrouble,omitempty"`  // why labels, sets and services are of an older site
	InboxTrouble string          `json:"inboxTrouble,omitempty"` // why reports in the registry of reports could not be read
	Time         time.Time       `json:"time"`
}

// Summary returns the fleet at a glance.
func (f *Fleet) Summary() Summary {
	now := f.Hub.Now()
	return Summary{f.Hub.Fleet(), view.Summarise(f.Hub.Nodes(), now), f.lately(now), TroubleWith(f.Site), TroubleWith(f.Inbox), now.UTC().Truncate(time.Second)}
}

// lately returns the rollouts that somebody may want to know of at once.
func (f *Fleet) lately(now time.Time) []rollout.Brief {
	list := []rollout.Brief{}
	for _, r := range f.Hub.Rollouts() {
		if b := r.Brief(now); !b.Ended() || now.Sub(b.Since) < 24*time.Hour {
			list = append(list, b)
		}
	}
	return list
}
