// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/rescue"
	"github.com/caisson-os/caisson/internal/paths"
)

const shellUnit = "caisson-rescue"

// console has a shell of root on the console for what is left, or ends it and gives the console
// back. A shell that somebody left comes again, as long as it is open.
func (d Doors) console(ctx context.Context, o *rescue.Open, left time.Duration) error {
	if o == nil || !o.Console {
		return nil
	}
	if d.Systemd == nil {
		if left > 0 {
			return errors.New("console: systemd does not run here")
		}
		return nil
	}
	state, _, err := d.Systemd.State(ctx, shellUnit+".service")
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	switch runs := state == active; {
	case left > 0 && !runs:
		err = d.begin(ctx, o, left)
	case left == 0:
		if runs {
			err = d.Systemd.Do(ctx, "stop", shellUnit+".service")
		}
		if o.Getty != "" {
			err = errors.Join(err, d.Systemd.Do(ctx, "start", o.Getty))
		}
	}
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	return nil
}

// begin starts the shell in place of the getty that has the console.
func (d Doors) begin(ctx context.Context, o *rescue.Open, left time.Duration) error {
	tty, err := rescue.Terminal(d.Root)
	if err != nil {
		return err
	}
	getty := "serial-getty@" + tty + ".service"
	if number, ok := strings.CutPrefix(tty, "tty"); ok && strings.Trim(number, "0123456789") == "" {
		getty = "getty@" + tty + ".service"
	}
	if state, _, err := d.Systemd.State(ctx, getty); err != nil {
		return err
	} else if state == active {
		o.Getty = getty
	}
	return d.Systemd.Console(ctx, process.Terminal{Name: shellUnit, TTY: "/dev/" + tty, Args: []string{d.Program, paths.RescueShell, onConsole}, Limit: left, InPlaceOf: getty})
}
