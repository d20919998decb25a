// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/caisson-os/caisson/bootagent/letin"
	"github.com/caisson-os/caisson/bootagent/rescue/door"
	"github.com/caisson-os/caisson/internal/cli"
)

// rescueKeys prints the keys that sshd is to let root in by.
func (a *app) rescueKeys() error {
	o, up, err := letin.Now(a.root)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cli.Printf(a.out, "%s", door.Keys(o, up, self))
	return nil
}

// rescueShell is a session that such a key began.
func (a *app) rescueShell(ctx context.Context) error {
	o, up, err := letin.Now(a.root)
	if err != nil {
		return err
	}
	code, err := door.Session(ctx, o.Left(up))
	if err == nil && code != 0 {
		os.Exit(code)
	}
	return err
}
