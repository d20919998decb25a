// SPDX-License-Identifier: Apache-2.0

// Package query answers what is asked of a fleet: how it is at a glance, which nodes meet
// a query, one node in full, and where its services stand.
//
// What is known of nodes is package hub's; labels, sets and services are the site's, and
// what overlays bring and git has comes through small interfaces. The answers are the
// documents of the service's API: fleet/server sends them, and cmd/caisson prints them,
// whether it asked a service, by a [Client], or has read the reports itself.
package query

import (
	"time"

	"github.com/caisson-os/caisson/fleet/commits"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Fleet is a fleet of which something is asked.
type Fleet struct {
	Hub   *hub.Hub
	Site  Site  // nil: nodes are not found by label or set
	Inbox Inbox // nil: nobody reads reports in a registry
	Sent  Sent  // nil: nobody reads overlays
	Heads Heads // nil: git is not asked
}

// Site holds what a site adds to its fleet: labels and sets of nodes, and what services
// follow, are written there and published nowhere.
type Site interface {
	Now() *site.Site
	Having(settings []string) ([]string, error) // each as 'caisson explain --where' has it
	ServicesLock() (*service.Lock, error)       // as it is now
	Trouble() error                             // why it is not as its files are by now, nil where it is
}

// Inbox is where nodes put reports that they do not send.
type Inbox interface {
	Trouble() error // why not everything there could be read, nil where it was
}

// Sent says which commits of services and which windows overlays bring, as far as they were read.
type Sent interface {
	Windows(overlay string) (m *spec.Maintenance, read bool) // nil: none
	Services(overlay string) (commits map[string]string, read bool)
	Left() (overlays int, trouble error) // that were not read yet, and what was in the way
}

// Heads says what git has for services, as far as it was asked.
type Heads interface {
	Head(s *service.Service) (commits.Head, bool)
}

// TroubleWith says what is wrong with a source, "" where nothing is or there is none.
func TroubleWith(source interface{ Trouble() error }) string {
	if source == nil {
		return ""
	}
	if err := source.Trouble(); err != nil {
		return err.Error()
	}
	return ""
}

// Summary holds what GET /v1/summary answers.
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
	return Summary{f.Hub.Fleet(), view.Summarise(f.Hub.Nodes()), f.lately(now), TroubleWith(f.Site),
		TroubleWith(f.Inbox), now.UTC().Truncate(time.Second)}
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
