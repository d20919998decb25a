// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// Why says what is wrong with this node. A node that cannot say what it runs still has
// its black box.
func (n *Node) Why(ctx context.Context) (spec.Why, error) {
	events, trouble := n.box().Events()
	if n.unbound != nil {
		return spec.Why{}, n.unbound
	}
	st, err := n.Status(ctx)
	if err != nil {
		if errors.Is(err, track.ErrNothing) {
			err = nil
		}
		st = say.Nothing(n.boot, n.follower.Bootstrap.Fleet, err)
	}
	return say.Why(st, n.boot, events, trouble), nil
}
