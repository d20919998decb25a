// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Watched are the checks of an overlay that go on being looked at once it has proved
// itself. What they find degrades the node, and undoes nothing: that what ran before would
// do better is known of a change that has just been made, and of nothing else.
func Watched(o *spec.Overlay) (checks []spec.HealthCheck) {
	if o.Gates == nil {
		return nil
	}
	for _, c := range o.Gates.Checks {
		if c.Watch {
			checks = append(checks, c)
		}
	}
	return checks
}

// Watching returns what is known of the watched checks of what runs, on this root.
func (so *Soak) Watching(found *track.Found) (gate.Record, error) {
	g := found.Generation
	r, err := gate.Load(so.Path(paths.RunWatched))
	if err == nil && r.Of(so.Scopes.Root, g.Overlay) {
		return *r, nil
	}
	return gate.Record{Root: so.Scopes.Root, Overlay: g.Overlay, Began: session.Seconds(so.Up())}, err
}

// Unwell are the watched checks that did not hold when they were looked at last, by name.
func (so *Soak) Unwell(found *track.Found) (why map[string]string, err error) {
	checks := Watched(&found.Overlay)
	if len(checks) == 0 {
		return nil, nil
	}
	r, err := so.Watching(found)
	why = map[string]string{}
	for _, c := range checks {
		if p := r.Checks[c.Name]; p.Looked != 0 && p.Since == 0 {
			why[c.Name] = p.Why
		}
	}
	return why, err
}
