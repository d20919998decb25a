// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/rescue/letin"
	"github.com/caisson-os/caisson/internal/cli"
)

// rescueKeys prints the keys that sshd is to let root in by, and notes the connection that asks.
func (a *app) rescueKeys() error {
	o, up, err := letin.Now(a.root)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	keys := letin.Keys(o, up, self)
	if keys == "" {
		return nil
	}
	if err := letin.Note(a.root, os.Getppid()); err != nil {
		return err // nobody comes in whom nothing would end
	}
	cli.Printf(a.out, "%s", keys)
	return nil
}

// rescueShell is a session that such a key began, or the shell on the console.
func (a *app) rescueShell(ctx context.Context, by string) error {
	code, err := letin.Session(ctx, a.root, func() time.Duration {
		o, up, err := letin.Now(a.root)
		if err != nil {
			return 0 // what cannot be read lets nobody in
		}
		return letin.Left(o, up, by)
	})
	if err == nil && code != 0 {
		os.Exit(code)
	}
	return err
}
