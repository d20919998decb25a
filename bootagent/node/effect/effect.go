// SPDX-License-Identifier: Apache-2.0

// Package effect says what is in effect on a node: the overlay that its root runs, verified
// again, the items that this leads to, what is corrected of them and what is left alone, and
// how long a run of them may take. It decides nothing about generations.
package effect

import (
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/decide/policy"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/node/services"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/takeover"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/spec"
)

// Effect is what an open node runs.
type Effect struct {
	*session.Session
	root     *stacked.Root
	services *services.Services

	Began []item.Item     // all that this node made
	book  *policy.Book    // opened when it is asked for
	taken *takeover.Found // what Divingbell left and is not put away yet
}

// New returns what an open node runs.
func New(s *session.Session, root *stacked.Root, services *services.Services) *Effect {
	return &Effect{Session: s, root: root, services: services}
}

// Runs is what this root runs, nil where that is nothing.
func (ef *Effect) Runs(s *state.State) *state.Generation {
	return decide.Runs(s, ef.Boot.Generation, ef.Boot.Live.Applied, ef.Scopes.Kernel, ef.root.RunsHere)
}

// PausedBy says why nothing may be changed now, "" where it may. A machine that comes up is
// brought to what its overlay says.
func (ef *Effect) PausedBy(found *track.Found) (string, error) {
	if found == nil || !ef.Begun() {
		return "", nil
	}
	p, err := ef.Pause(found)
	if err != nil || p == nil {
		return "", err
	}
	return say.Pause(p), nil
}

// Running returns the overlay that this root runs, verified again.
func (ef *Effect) Running() (*track.Found, error) {
	if ef.Tracker == nil {
		return nil, ef.Unbound
	}
	s, err := ef.Owner.State()
	if err != nil {
		return nil, err
	}
	g := ef.Runs(s)
	if g == nil {
		return nil, track.ErrNothing
	}
	found, err := ef.Tracker.Recall(g)
	if err != nil && g.IsAhead() && s.Current != nil && s.Current.Layer == g.Layer {
		// A newer signature of it may leave this layer out.
		ef.Say("what runs is not signed for this layer any more: %v", err)
		g = s.Current
		found, err = ef.Tracker.Recall(g)
	}
	if w := ef.Boot.Live.Without; err == nil && w != nil && w.Overlay == g.Overlay {
		found.Overlay.Items = found.Overlay.Items.Keeping(w.Kept)
	}
	return found, err
}

// Found is running where nothing that runs is not an error.
func (ef *Effect) Found() (*track.Found, error) {
	found, err := ef.Running()
	if errors.Is(err, track.ErrNothing) {
		return nil, nil
	}
	return found, err
}

// Items are all kinds with what a generation wants of them.
func (ef *Effect) Items(f *track.Found) []item.Item {
	o := &f.Overlay
	open, dir := ef.opener(o)
	table := items.Table(o.Items, items.Options{Accounts: ef.root.Accounts(f.Generation.Layer), Services: ef.services.Effective(o.Services), Images: ef.services.Images(), Secrets: o.Secrets, SecretDir: dir, OpenSecret: open, OwnSecrets: track.OwnSecrets(o),
		Journal: ef.Journal, Scopes: ef.Scopes, State: ef.Folder.Path(), Exec: ef.Folder.Path("exec"), Log: ef.Say,
		Proc: ef.Seam("/proc"), Etc: ef.Seam("/etc"), Sys: ef.Seam("/sys"), Lib: ef.Seam("/lib"), Dev: ef.Seam("/dev"), Runner: ef.Runner(), Systemd: ef.Systemd(), Signed: ef.signed, Past: ef.past(), Leaving: ef.leaving()})
	ef.Began = append(ef.Began, table...)
	return table
}

// Pause returns the pause of this node, nil when there is none or it is over: an
// operator's here, or the fleet's. The newest overlay that was accepted says what the
// fleet wants, also one that waits for a reboot.
func (ef *Effect) Pause(found *track.Found) (*spec.Hold, error) {
	s, err := ef.Owner.State()
	if err != nil {
		return nil, err
	}
	if p := s.PauseAt(time.Now().Unix()); p != nil {
		return p, nil
	}
	if s.Staged != nil && s.Staged.Overlay != found.Generation.Overlay && decide.Older(found.Generation, *s.Staged) {
		if staged, err := ef.Tracker.Recall(s.Staged); err == nil { // one that was lost pauses nothing
			found = staged
		}
	}
	p := found.Overlay.Pause
	if p == nil || p.Until != 0 && p.Until <= time.Now().Unix() {
		return nil, nil
	}
	return &spec.Hold{Kind: spec.HoldPause, Author: fleet, Reason: p.Reason, Until: p.Until}, nil
}

// fleet is who pauses a node by its overlay.
const fleet = "the fleet"
