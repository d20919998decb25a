// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"

	"github.com/caisson-os/caisson/fleet/history"
)

// diffGenerations prints what changed from one generation of a fleet to another.
func (a *app) diffGenerations(ctx context.Context, look *looking, ref, from, to string) error {
	fleet, err := look.open(ctx, a, ref)
	if err != nil {
		return err
	}
	g, err := fleet.Find(ctx, from)
	if err != nil {
		return err
	}
	h, err := fleet.Find(ctx, to)
	if err != nil {
		return err
	}
	found, err := history.Between(ctx, fleet, g, h)
	if err != nil {
		return err
	}
	return cmp.Or(a.show(found, func() { found.Write(a.out) }), drift(found.Changed()))
}
