// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/node"
)

func confirm(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "confirm")
	if err := f.parse(a, args); err != nil {
		return err
	}
	n, err := node.Open(ctx, a.options("confirm"), nil)
	if err != nil {
		return err
	}
	defer n.Close() // what was journaled is on disk already
	if err := n.Confirm(ctx); err != nil {
		return err
	}
	a.say("the change is confirmed")
	return nil
}
