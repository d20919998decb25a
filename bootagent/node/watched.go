// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// watched are the checks of an overlay that go on being looked at once it has proved
// itself. What they find degrades the node, and undoes nothing: that what ran before would
// do better is known of a change that has just been made, and of nothing else.
func watched(o *spec.Overlay) (checks []spec.HealthCheck) {
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

// watching returns what is known of the watched checks of what runs, on this root.
func (n *Node) watching(found *track.Found) (gate.Record, error) {
	g := found.Generation
	r, err := gate.Load(n.path(paths.RunWatched))
	if err == nil && r.Of(n.scopes.Root, g.Overlay) {
		return *r, nil
	}
	return gate.Record{Root: n.scopes.Root, Overlay: g.Overlay, Began: seconds(n.up())}, err
}

// watch looks once at those checks that are due. It holds no lock, as [Judge]: the next
// look at the node says what was found.
func watch(ctx context.Context, o Options, bootstrap *spec.Bootstrap) error {
	n, err := Read(ctx, o, bootstrap)
	if err != nil {
		return err
	}
	defer n.Close() // only read
	found, err := n.running()
	if err != nil {
		return nil // the next look at the node meets it, and says it once
	}
	checks := watched(&found.Overlay)
	if len(checks) == 0 {
		return nil
	}
	before, err := n.watching(found)
	if err != nil {
		return err
	}
	looked := n.prober().Look(ctx, before, checks)
	if ctx.Err() != nil {
		return nil // what was found is that this process ends
	}
	return looked.Save(n.path(paths.RunWatched))
}

// unwell are the watched checks that did not hold when they were looked at last, by name.
func (n *Node) unwell(found *track.Found) (why map[string]string, err error) {
	checks := watched(&found.Overlay)
	if len(checks) == 0 {
		return nil, nil
	}
	r, err := n.watching(found)
	why = map[string]string{}
	for _, c := range checks {
		if p := r.Checks[c.Name]; p.Looked != 0 && p.Since == 0 {
			why[c.Name] = p.Why
		}
	}
	return why, err
}
