// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/internal/cli"
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
	if a.json() {
		err = cli.JSON(a.out, found)
	} else {
		found.Write(a.out)
	}
	if err == nil && found.Changed() {
		err = cli.ErrDrift
	}
	return err
}
