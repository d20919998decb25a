// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
)

// Manager is the running systemd, for what is wanted of units that others wrote.
type Manager struct{}

// jobTime bounds how long a unit may take to start or stop: above systemd's own
// default, which ends most of them first.
const jobTime = 2 * time.Minute

// Do starts, stops, reloads or restarts a unit and returns when that is done, or when it waits
// for the agent's own start.
func (m Manager) Do(ctx context.Context, job, unit string) error {
	return m.ask(ctx, jobTime, func(ctx context.Context, d *dbus.Conn) error { return do(ctx, d, job, unit) })
}

func do(ctx context.Context, d *dbus.Conn, job, unit string) error {
	ask, ok := map[string]func(context.Context, string, string, chan<- string) (int, error){
		"start": d.StartUnitContext, "stop": d.StopUnitContext, "restart": d.RestartUnitContext,
		"reload": d.ReloadUnitContext, "reload-or-restart": d.ReloadOrRestartUnitContext}[job]
	if !ok {
		return fmt.Errorf("systemd has no job %q", job)
	}
	done := make(chan string, 1)
	id, err := ask(ctx, unit, "replace", done)
	if err != nil {
		return fmt.Errorf("%s %s: %w", job, unit, err)
	}
	tick := time.NewTicker(queued)
	defer tick.Stop()
	for {
		select {
		case result := <-done:
			if result != "done" {
				return fmt.Errorf("%s %s: %s", job, unit, result)
			}
			return nil
		case <-tick.C:
			if waits, err := waitsForUs(ctx, d, uint32(id)); waits || err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", job, unit, ctx.Err())
		}
	}
}

// queued is how long a job may wait for its turn before it is asked whether that
// comes only when the agent has started.
const queued = time.Second

// waitsForUs reports whether a job is queued while the agent's own service still
// starts: what is ordered after that service, as whatever a mount comes before is,
// starts when the agent has, and to wait for it here would hold up both.
func waitsForUs(ctx context.Context, d *dbus.Conn, id uint32) (bool, error) {
	jobs, err := d.ListJobsContext(ctx)
	if err != nil {
		return false, fmt.Errorf("list jobs: %w", err)
	}
	starting, waiting := false, false
	for _, j := range jobs {
		starting = starting || j.Unit == paths.AgentService && j.JobType != "stop"
		waiting = waiting || j.Id == id && j.Status == "waiting"
	}
	return starting && waiting, nil
}

// Reload has systemd read the files of units again.
func (m Manager) Reload(ctx context.Context) error {
	return m.ask(ctx, jobTime, func(ctx context.Context, d *dbus.Conn) error {
		return fault.In(d.ReloadContext(ctx), "reload units")
	})
}

// State says what a unit does: it is active, also when it is about to be, and since
// when it began to start; or inactive; or once, which is inactive and ends by itself when it runs.
func (m Manager) State(ctx context.Context, unit string) (state string, since time.Time, err error) {
	err = m.ask(ctx, answer, func(ctx context.Context, d *dbus.Conn) error {
		all, err := d.GetAllPropertiesContext(ctx, unit)
		if err != nil {
			return fmt.Errorf("look at %s: %w", unit, err)
		}
		active, _ := all["ActiveState"].(string)
		kind, _ := all["Type"].(string)
		remains, _ := all["RemainAfterExit"].(bool)
		began, _ := all["InactiveExitTimestamp"].(uint64)
		switch {
		case active == "active" || active == "activating" || active == "reloading" || active == "refreshing":
			state, since = "active", time.UnixMicro(int64(began))
		case isQueued(ctx, d, unit):
			state, since = "active", time.Now()
		case kind == "oneshot" && !remains:
			state = "once"
		default:
			state = "inactive"
		}
		return nil
	})
	return state, since, err
}

// Times says when a unit began to start, and when it was there: it was active, or had ended, as a
// oneshot does. Both are of the kernel's clock, and 0 for what has not come.
func (m Manager) Times(ctx context.Context, unit string) (began, there time.Duration, err error) {
	err = m.ask(ctx, answer, func(ctx context.Context, d *dbus.Conn) error {
		all, err := d.GetUnitPropertiesContext(ctx, unit)
		if err != nil {
			return fmt.Errorf("look at %s: %w", unit, err)
		}
		at := func(name string) time.Duration {
			µs, _ := all[name+"TimestampMonotonic"].(uint64)
			return time.Duration(µs) * time.Microsecond
		}
		if began = at("InactiveExit"); began == 0 {
			return nil
		}
		for _, name := range []string{"ActiveEnter", "InactiveEnter"} {
			if t := at(name); there == 0 && t >= began {
				there = t
			}
		}
		return nil
	})
	return began, there, err
}

// resources are the limits of processes by the names that systemd has for them.
var resources = map[string]int{"AS": unix.RLIMIT_AS, "CORE": unix.RLIMIT_CORE, "CPU": unix.RLIMIT_CPU,
	"DATA": unix.RLIMIT_DATA, "FSIZE": unix.RLIMIT_FSIZE,
	"LOCKS": unix.RLIMIT_LOCKS, "MEMLOCK": unix.RLIMIT_MEMLOCK, "MSGQUEUE": unix.RLIMIT_MSGQUEUE,
	"NICE": unix.RLIMIT_NICE, "NOFILE": unix.RLIMIT_NOFILE, "NPROC": unix.RLIMIT_NPROC,
	"RSS": unix.RLIMIT_RSS, "RTPRIO": unix.RLIMIT_RTPRIO, "RTTIME": unix.RLIMIT_RTTIME,
	"SIGPENDING": unix.RLIMIT_SIGPENDING, "STACK": unix.RLIMIT_STACK}

// Outdated returns the services that were started before a moment and whose main process
// has other limits than a new one would be given. A process may have changed its own since.
func (m Manager) Outdated(ctx context.Context, limits []string, since time.Time) (names []string, err error) {
	err = m.ask(ctx, answer, func(ctx context.Context, d *dbus.Conn) error {
		list, err := d.ListUnitsByPatternsContext(ctx, []string{"active", "reloading"}, []string{"*.service"})
		if err != nil {
			return fmt.Errorf("list services: %w", err)
		}
		for _, u := range list {
			all, err := d.GetUnitTypePropertiesContext(ctx, u.Name, "Service")
			if err != nil {
				continue // it has ended since
			}
			pid, _ := all["MainPID"].(uint32)
			began, _ := all["ExecMainStartTimestamp"].(uint64)
			if pid == 0 || !time.UnixMicro(int64(began)).Before(since) {
				continue
			}
			if slices.ContainsFunc(limits, func(name string) bool { return differs(int(pid), name, all) }) {
				names = append(names, u.Name)
			}
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// differs reports whether a process has another limit than its service.
func differs(pid int, name string, service map[string]any) bool {
	resource, ok := resources[name]
	var now unix.Rlimit
	if !ok || unix.Prlimit(pid, resource, nil, &now) != nil {
		return false // it has ended since
	}
	hard, isHard := service["Limit"+name].(uint64)
	soft, isSoft := service["Limit"+name+"Soft"].(uint64)
	return isHard && now.Max != hard || isSoft && now.Cur != soft
}

// isQueued reports whether a unit that does not run is about to be started.
func isQueued(ctx context.Context, d *dbus.Conn, unit string) bool {
	jobs, err := d.ListJobsContext(ctx)
	return err == nil && slices.ContainsFunc(jobs, func(j dbus.JobStatus) bool {
		return j.Unit == unit && (j.JobType == "start" || j.JobType == "restart")
	})
}

// Run says what state a unit is in, in systemd's word, and what tells this run of it
// from the next one.
func (m Manager) Run(ctx context.Context, unit string) (state, run string, err error) {
	err = m.ask(ctx, answer, func(ctx context.Context, d *dbus.Conn) error {
		all, err := d.GetUnitPropertiesContext(ctx, unit)
		if err != nil {
			return fmt.Errorf("look at %s: %w", unit, err)
		}
		state, _ = all["ActiveState"].(string)
		id, _ := all["InvocationID"].([]byte)
		run = hex.EncodeToString(id)
		if load, _ := all["LoadState"].(string); load != "loaded" {
			state = load // not-found, masked …
		}
		return nil
	})
	return state, run, err
}

// Trouble names the units that failed, also those that systemd will start again, and those that
// it is starting; not those that ask.
func (m Manager) Trouble(ctx context.Context) (failed, starting []string, err error) {
	asks := func(unit string) bool { return strings.HasPrefix(unit, "caisson-deadline") }
	err = m.ask(ctx, answer, func(ctx context.Context, d *dbus.Conn) error {
		units, err := d.ListUnitsFilteredContext(ctx, []string{"failed", "activating"})
		if err != nil {
			return fmt.Errorf("list units: %w", err)
		}
		for _, u := range units {
			if again := strings.HasPrefix(u.SubState, "auto-restart"); (again || u.ActiveState == "failed") && !asks(u.Name) {
				failed = append(failed, u.Name)
			}
		}
		jobs, err := d.ListJobsContext(ctx)
		if err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		for _, j := range jobs {
			if j.JobType == "start" && j.Status == "running" && !asks(j.Unit) {
				starting = append(starting, j.Unit)
			}
		}
		return nil
	})
	return failed, starting, err
}

// Reboot has systemd end what runs and start the machine over. It returns when that
// is begun.
func (m Manager) Reboot(ctx context.Context) error { return m.leave(ctx, "reboot.target") }

// devices is the unit that has udev go through the devices that are there. systemd keeps it over a
// soft-reboot.
const devices = "systemd-udev-trigger.service"

// SoftReboot has systemd end what runs and go on in the root at paths.NextRoot. It returns when that
// is begun. With replug that root has udev go through the devices again, as a boot does.
func (m Manager) SoftReboot(ctx context.Context, replug bool) error {
	if replug {
		if err := m.Do(ctx, "stop", devices); err != nil {
			return err
		}
	}
	return m.leave(ctx, paths.SoftReboot)
}

// leave waits longer than for another answer: a manager that is busy begins all the same,
// and who has heard an error by then undoes what was made for it.
func (m Manager) leave(ctx context.Context, target string) error {
	return m.ask(ctx, jobTime, func(ctx context.Context, d *dbus.Conn) error {
		_, err := d.StartUnitContext(ctx, target, "replace-irreversibly", nil)
		return fault.In(err, "start %s", target)
	})
}

// ask connects to systemd itself, so that no bus daemon is needed.
func (Manager) ask(ctx context.Context, limit time.Duration, do func(context.Context, *dbus.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer d.Close()
	return do(ctx, d)
}
