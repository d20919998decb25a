// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/sense/trial"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Dial asks the registry over a new connection, in all its places. What it says does not matter,
// nor that it ends the connection; one that is refused may be so by this machine's own rules.
func (n *Session) Dial(ctx context.Context) error {
	s, err := n.Owner.State()
	if err != nil {
		return err
	}
	source, err := n.Options.Source(n.Tracker.Bootstrap, n.Way(s, n.Tracker.Identity))
	if err != nil {
		return err
	}
	_, err = source.Manifest(ctx, oci.RepoFleet, "current", "")
	if errors.Is(err, oci.ErrNotFound) || errors.Is(err, oci.ErrAnswered) || errors.Is(err, unix.ECONNRESET) || refusal.Of(err) != "" {
		return nil
	}
	return err
}

// Reached asks the registry, which a node that is not cut off reaches, for as long as within.
func (n *Session) Reached(ctx context.Context, within time.Duration) error {
	if err := trial.Reach(ctx, n.clock(), within, n.Dial); err != nil {
		return fmt.Errorf("the registry was not reached within %s: %w", within.Round(time.Second), err)
	}
	return nil
}

// Within is how long a change has to prove that the node is still reached.
func (n *Session) Within() time.Duration {
	if n.Options.Within > 0 {
		return n.Options.Within
	}
	return trial.Within
}
