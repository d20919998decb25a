// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// Manager is the running systemd, for what is wanted of units that others wrote.
type Manager struct{}

// jobTime bounds how long a unit may take to start or stop: above systemd's own
// default, which ends most of them first.
const jobTime = 2 * time.Minute

// Do starts, stops or restarts a unit and returns when that is done.
func (Manager) Do(ctx context.Context, job, unit string) error {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	d, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer d.Close()
	ask, ok := map[string]func(context.Context, string, string, chan<- string) (int, error){
		"start": d.StartUnitContext, "stop": d.StopUnitContext, "restart": d.RestartUnitContext}[job]
	if !ok {
		return fmt.Errorf("systemd has no job %q", job)
	}
	done := make(chan string, 1)
	if _, err := ask(ctx, unit, "replace", done); err != nil {
		return fmt.Errorf("%s %s: %w", job, unit, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s %s: %s", job, unit, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", job, unit, ctx.Err())
	}
}
