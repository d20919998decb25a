// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/node"
)

func reboot(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "reboot")
	if err := f.parse(a, args); err != nil {
		return err
	}
	n, err := node.Open(ctx, a.options("reboot"), nil)
	if err != nil {
		return err
	}
	defer n.Close() // what was noted is on disk already
	if a.root != "" {
		return errors.New("reboot: this is the root of a test; its machine is not started over")
	}
	class, why, err := n.Reboot(ctx)
	if err != nil {
		return err
	}
	a.say("%s: %s", class, why)
	return nil
}
