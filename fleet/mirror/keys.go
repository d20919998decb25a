// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
)

// byKeys parts rows by when their overlays are copied: before the versions of the keys that
// the destination lacks, where its nodes can verify them by those that they have, else after.
// A node that boots while this is at work finds what it can verify, as long as what was
// published after a rotation is not the first that is copied of it: then it does once its own
// overlay is there.
func (r *run) byKeys(ctx context.Context, rows index.Rows) (before, after index.Rows, err error) {
	known, err := r.knownThere(ctx)
	if err != nil || known == nil {
		return nil, rows, err
	}
	before, after = index.Rows{}, index.Rows{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		group.Go(func() error {
			c, err := trust.Overlay(ctx, r.From.Registry.Source(), []string{name}, "")
			if err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
			_, err = sign.VerifyOverlay(c.Bundles, known.Operator, known.Threshold, oci.Digest(c.Document))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				before[name] = rows[name]
			} else {
				after[name] = rows[name] // its nodes need the keys first
			}
			return nil
		})
	}
	return before, after, group.Wait()
}

// knownThere returns the policy of the newest version of the keys that the destination has, nil
// where it lacks none.
func (r *run) knownThere(ctx context.Context) (*publish.Policy, error) {
	if r.policy.Chain == nil {
		return nil, nil
	}
	has, _, err := r.To.NewestKeys(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := r.policy.Versions()
	if err != nil || has >= r.policy.Chain.Version() {
		return nil, err
	}
	lacks := min(int(r.policy.Chain.Version()-has), len(versions)-1)
	return &versions[lacks], nil
}
