// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/caisson-os/caisson/bootagent/daemon"
	"github.com/caisson-os/caisson/internal/cli"
)

// runService is the systemd service, until a signal ends it.
func runService(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "run")
	if err := f.parse(a, args); err != nil {
		return err
	}
	return daemon.Run(ctx, daemon.Config{Node: a.options("run"), Report: a.complain})
}

// complain says what went wrong where that is not the end.
func (a *app) complain(err error) { cli.Report(a.err, "caisson-agent", err) }
