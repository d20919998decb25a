// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Terminal is a program of root that has a terminal to itself for a while.
type Terminal struct {
	Name      string // of the service, without suffix
	TTY       string // path of the device
	Args      []string
	Limit     time.Duration // after which systemd ends all of it
	InPlaceOf string        // unit that is stopped for it
}

// Console starts a program on a terminal, as debug-shell.service of systemd does.
func (m Manager) Console(ctx context.Context, t Terminal) error {
	type execStart struct {
		Path   string
		Args   []string
		Ignore bool
	}
	p := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	settings := []dbus.Property{
		p("Description", "Caisson: "+t.Name),
		p("Type", "exec"),
		p("ExecStart", []execStart{{t.Args[0], t.Args, false}}),
		p("Environment", []string{"HOME=/root", "USER=root", "LOGNAME=root"}),
		p("StandardInput", "tty"), p("StandardOutput", "tty"), p("StandardError", "tty"),
		p("TTYPath", t.TTY), p("TTYReset", true), p("TTYVHangup", true),
		p("IgnoreSIGPIPE", false), p("SendSIGHUP", true),
		p("RuntimeMaxUSec", uint64(t.Limit/time.Microsecond)),
		p("TimeoutStopUSec", uint64(grace/time.Microsecond)),
		p("Conflicts", []string{t.InPlaceOf}), p("After", []string{t.InPlaceOf}),
	}
	unit := t.Name + ".service"
	return m.ask(ctx, jobTime, func(ctx context.Context, d *dbus.Conn) error {
		if err := clear(ctx, d, unit); err != nil { // what ended before
			return err
		}
		done := make(chan string, 1)
		if _, err := d.StartTransientUnitContext(ctx, unit, "replace", settings, done); err != nil {
			return fmt.Errorf("start %s: %w", unit, err)
		}
		select {
		case result := <-done:
			if result != "done" {
				return fmt.Errorf("start %s: %s", unit, result)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w", unit, ctx.Err())
		}
	})
}
