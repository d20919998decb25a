// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
)

// Service runs commands as transient services. What identifies a run is the
// unit's name, so a later process of this program can ask for it. This program
// is what systemd starts, with LaunchVerb.
type Service struct{}

// answer bounds what systemd may take to answer.
const answer = 30 * time.Second

// Start starts c. A unit of that name that has ended is cleared away; one that
// runs is an error.
func (s Service) Start(ctx context.Context, c Command) (id string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	unit := c.Name + ".service"
	err = s.ask(ctx, func(ctx context.Context, d *dbus.Conn) error {
		if now, err := look(ctx, d, unit); err != nil {
			return err
		} else if now.known {
			if now.runs() {
				return ErrRuns
			}
			if err := clear(ctx, d, unit); err != nil {
				return err
			}
		}
		log, err := openLog(c.Log)
		if err != nil {
			return err
		}
		if err := log.Close(); err != nil {
			return err
		}
		file := c.Log + ".launch"
		if err := c.save(file); err != nil {
			return err
		}
		done := make(chan string, 1)
		if _, err := d.StartTransientUnitContext(ctx, unit, "fail", properties(c, self, file), done); err != nil {
			return errors.Join(err, os.Remove(file))
		}
		select {
		case result := <-done:
			if result == "done" {
				return nil
			}
			// A program may end badly before systemd has said that it started.
			if now, err := look(ctx, d, unit); err == nil && now.ran() {
				return nil
			}
			return fmt.Errorf("systemd: start %s: %s", unit, result)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err == nil {
		return unit, nil
	}
	if errors.Is(err, ErrRuns) {
		id = unit
	}
	return id, fmt.Errorf("start %s: %w", unit, err)
}

// properties are the settings of the unit, see systemd.exec(5) and
// systemd.service(5). RemainAfterExit keeps the unit until its end was read.
func properties(c Command, self, file string) []dbus.Property {
	type execStart struct { // of ExecStartEx
		Path  string
		Args  []string
		Flags []string
	}
	p := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	limit := uint64(1<<64 - 1)
	if c.Limit > 0 {
		limit = uint64(c.Limit / time.Microsecond)
	}
	settings := []dbus.Property{
		p("Description", "Caisson: "+c.Name),
		p("Type", "exec"),
		p("RemainAfterExit", true),
		p("ExecStartEx", []execStart{{self, []string{self, LaunchVerb, file}, []string{"no-env-expand"}}}),
		p("RuntimeMaxUSec", limit),
		p("TimeoutStopUSec", uint64(grace/time.Microsecond)),
		p("OOMScoreAdjust", int32(0)),
		p("UMask", uint32(0o022)),
		p("IgnoreSIGPIPE", false),
		p("StandardOutputFileToAppend", c.Log),
		p("StandardErrorFileToAppend", c.Log),
	}
	if len(c.Secrets) > 0 { // a dump would have them; 0 does not keep one from a pipe, see core(5)
		settings = append(settings, p("LimitCORE", uint64(1)))
	}
	if c.MemoryMax > 0 {
		settings = append(settings, p("MemoryMax", uint64(c.MemoryMax)))
	}
	if c.CPUQuota > 0 {
		settings = append(settings, p("CPUQuotaPerSecUSec", uint64(c.CPUQuota)*uint64(time.Second/time.Microsecond/100)))
	}
	if c.TasksMax > 0 {
		settings = append(settings, p("TasksMax", uint64(c.TasksMax)))
	}
	return settings
}

// Wait returns when the program has ended, with nil, an *Exit, or ErrUnknown. [Service.End] ends
// what it has left running.
func (s Service) Wait(ctx context.Context, unit string) error {
	var end error
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		over := false
		err := s.ask(ctx, func(ctx context.Context, d *dbus.Conn) error {
			now, err := look(ctx, d, unit)
			over, end = err == nil && !now.runs(), now.exit()
			return err
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w: %w", unit, ErrNoAnswer, err)
		}
		if over {
			return end
		}
		if stall.Rest(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// End ends a run and everything that it started, and forgets it.
func (s Service) End(unit string) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace+answer)
	defer cancel()
	err := s.ask(ctx, func(ctx context.Context, d *dbus.Conn) error { return clear(ctx, d, unit) })
	return fault.In(err, "end %s", unit)
}

// Running reports whether the program of a run is still there.
func (s Service) Running(unit string) bool {
	var now state
	err := s.ask(context.Background(), func(ctx context.Context, d *dbus.Conn) (err error) {
		now, err = look(ctx, d, unit)
		return err
	})
	return err == nil && now.runs()
}

func (Service) ask(ctx context.Context, do func(context.Context, *dbus.Conn) error) error {
	return Manager{}.ask(ctx, grace+answer, do)
}

// clear stops what is left of a unit and removes it.
func clear(ctx context.Context, d *dbus.Conn, unit string) error {
	done := make(chan string, 1)
	if _, err := d.StopUnitContext(ctx, unit, "replace", done); err != nil {
		if call, ok := errors.AsType[godbus.Error](err); ok && call.Name == "org.freedesktop.systemd1.NoSuchUnit" {
			return nil
		}
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	_ = d.ResetFailedUnitContext(ctx, unit) // one that did not fail is gone by now
	return nil
}

// state holds systemd's properties of a unit.
type state struct {
	known       bool
	active, sub string
	result      string
	code        int32 // si_code of SIGCHLD
	status      int32
	limit       uint64 // microseconds
}

func look(ctx context.Context, d *dbus.Conn, unit string) (state, error) {
	all, err := d.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return state{}, err
	}
	var s state
	load, _ := all["LoadState"].(string)
	s.known = load == "loaded"
	s.active, _ = all["ActiveState"].(string)
	s.sub, _ = all["SubState"].(string)
	s.result, _ = all["Result"].(string)
	s.code, _ = all["ExecMainCode"].(int32)
	s.status, _ = all["ExecMainStatus"].(int32)
	s.limit, _ = all["RuntimeMaxUSec"].(uint64)
	return s, nil
}

// runs reports whether the main process is there, or is being ended.
func (s state) runs() bool {
	return s.known && s.active != "inactive" && s.active != "failed" && s.sub != "exited"
}

// exited is CLD_EXITED of sigaction(2): the program ended by itself.
const exited = 1

// ran reports whether the program was there and has ended. Above 200 are the codes
// of what systemd could not prepare, see systemd.exec(5).
func (s state) ran() bool {
	return s.known && !s.runs() && s.code != 0 && (s.code != exited || s.status < 200)
}

// exit is how it ended, nil for exit code 0.
func (s state) exit() error {
	switch {
	case !s.known || s.code == 0:
		return ErrUnknown
	case s.result == "timeout":
		return &Exit{Timeout: time.Duration(s.limit) * time.Microsecond}
	case s.code == exited && s.status == 0:
		return nil
	case s.code == exited:
		return &Exit{Code: int(s.status)}
	}
	e := &Exit{Signal: syscall.Signal(s.status)}
	if s.result != "signal" && s.result != "success" {
		e.Cause = s.result
	}
	return e
}
