// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/blackbox"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/why"
	"github.com/caisson-os/caisson/spec"
)

// Why says what is wrong with this node. A node that cannot say what it runs still has
// its black box.
func (n *Node) Why(ctx context.Context) (spec.Why, error) {
	events, trouble := blackbox.At(n.folder.Path(blackbox.Name)).Events()
	if n.unbound != nil {
		return spec.Why{}, n.unbound
	}
	st, err := n.Status(ctx)
	switch {
	case errors.Is(err, track.ErrNothing):
		st = &spec.Status{Node: n.boot.Node, Fleet: n.follower.Bootstrap.Fleet, Mode: n.boot.Mode, Health: spec.HealthOK, Sync: n.boot.Sync, SyncDetail: n.boot.SyncDetail}
	case err != nil:
		st = &spec.Status{Node: n.boot.Node, Fleet: n.follower.Bootstrap.Fleet, Mode: n.boot.Mode, Health: spec.HealthDegraded, Sync: n.boot.Sync, SyncDetail: n.boot.SyncDetail,
			Drift: []spec.Drift{{Item: "overlay", Key: "running", Action: spec.ActionRefuse, Reason: err.Error()}}}
	}
	w := why.Explain(st, events)
	w.Memory, w.Events = n.boot.Disk == "" && n.boot.Mode != spec.ModeAttached || n.boot.ReadOnly, events
	if trouble != nil {
		w.Trouble = trouble.Error()
	}
	return w, nil
}
