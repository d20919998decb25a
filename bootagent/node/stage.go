// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/spec"
)

// Stage brings the layer of the generation that waits for a reboot to the state disk,
// however slow the line is: the loader gives it a minute and boots the last good one
// otherwise. It needs no lock, and resumes what was cut.
func (n *Node) Stage(ctx context.Context) error {
	if n.follower == nil || n.boot.Mode == spec.ModeAttached || n.boot.Disk == "" || n.boot.ReadOnly {
		return nil // nothing that is fetched now would be there after a reboot
	}
	s, err := n.folder.Load()
	if err != nil || s.Staged == nil || s.Staged.Layer == n.boot.Generation.Layer || n.rejected(*s.Staged) != "" {
		return err
	}
	found, err := n.follower.Recall(s.Staged)
	if err != nil {
		return err
	}
	store, err := n.store()
	if err != nil {
		return err
	}
	release, err := n.holdStaging()
	if err != nil {
		return err
	}
	defer release()
	to := stage.Stager{Store: store, From: n.follower.Source, Talk: 10 * time.Minute, Say: n.o.Say}
	if err := to.Layer(ctx, found.Overlay.Layer, n.follower.Bootstrap); err != nil {
		return fmt.Errorf("stage generation %d: %w", found.Generation.Generation, err)
	}
	return nil
}
