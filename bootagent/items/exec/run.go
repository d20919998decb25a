// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
)

const (
	defaultTimeout = 1800 * time.Second
	grace          = 10 * time.Second // between SIGTERM and SIGKILL
)

// errTimeout ends a script that took too long.
var errTimeout = errors.New("timeout")

// run starts the script and, unless it goes to the background, waits for it.
func (i *Item) run(ctx context.Context, s script, last record) error {
	r := following(s.want, last)
	r.Root, r.Boot, r.Start = i.scopes.Root, i.scopes.Kernel, i.now().UTC()
	finish := func(err error) error {
		r.End, r.PID, r.Born = i.now().UTC(), 0, ""
		r.Exit, r.Cause = outcome(err)
		return errors.Join(err, s.write(r))
	}
	if err := s.write(r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd, err := s.start()
	if err != nil {
		return finish(err)
	}
	r.PID = cmd.Process.Pid
	r.Born, _ = birth(i.proc, r.PID) // without it the run only counts as interrupted
	if err := s.write(r); err != nil {
		kill(cmd)
		return err
	}
	if s.want.Blocking == "background" {
		i.background.Go(func() {
			// It outlives the pass that started it.
			if err := finish(s.wait(context.WithoutCancel(ctx), cmd)); err != nil {
				i.mu.Lock()
				defer i.mu.Unlock()
				i.late = append(i.late, fmt.Errorf("run script %q in the background: %w", s.want.Name, err))
			}
		})
		return nil
	}
	err = s.wait(ctx, cmd)
	if ctx.Err() != nil {
		return ctx.Err() // it was cut: the record stays unfinished
	}
	return finish(err)
}

func kill(cmd *osexec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have gone by itself
	_ = cmd.Wait()                                      // it was killed: how it ended is no news
}

// start puts the script in its folder and starts it in a process group and with
// a log of its own.
func (s script) start() (*osexec.Cmd, error) {
	if err := durable.WriteFile(filepath.Join(s.dir, s.want.Name), []byte(s.want.Data), 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(s.dir, logFile)
	if err := os.Rename(name, name+".old"); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	log, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	args := command(s.want)
	cmd := &osexec.Cmd{
		Path: args[0], Args: args, Dir: s.dir, Stdout: log, Stderr: log,
		Env:         append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}, environ(s.want.Env)...),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	return cmd, cmd.Start()
}

// wait waits for the script, at most as long as it may take, and ends its whole
// process group when that is over.
func (s script) wait(ctx context.Context, cmd *osexec.Cmd) error {
	limit := defaultTimeout
	if s.want.Timeout > 0 {
		limit = time.Duration(min(s.want.Timeout, 1<<32)) * time.Second // 136 years is no overflow
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(s.explain(err), s.capLog())
		case <-timer.C:
			end(cmd.Process.Pid, done)
			return fmt.Errorf("%w after %v", errTimeout, limit)
		case <-ctx.Done():
			end(cmd.Process.Pid, done)
			return ctx.Err()
		case <-tick.C:
			if err := s.capLog(); err != nil {
				end(cmd.Process.Pid, done)
				return err
			}
		}
	}
}

// maxLog bounds a log: on a diskless node it lies in memory.
const maxLog = 4 << 20

// capLog empties a log that grew too large. The script appends, so it goes on at
// the new end.
func (s script) capLog() error {
	name := filepath.Join(s.dir, logFile)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the script removed it: its own business
	}
	if err != nil || info.Size() <= maxLog {
		return err
	}
	return os.WriteFile(name, []byte("(the log grew too large and was emptied)\n"), 0o600)
}

// end asks a process group to end, then makes it. The group may outlive its
// leader, so the last word is a SIGKILL in any case.
func end(group int, done <-chan error) {
	_ = syscall.Kill(-group, syscall.SIGTERM) // it may have gone by itself
	select {
	case <-done: // how it ended does not matter: it was told to
		_ = syscall.Kill(-group, syscall.SIGKILL) // it may have gone by itself
	case <-time.After(grace):
		_ = syscall.Kill(-group, syscall.SIGKILL) // it may have gone by itself
		<-done                                    // how it ended does not matter: it was told to
	}
}

// explain adds where to look.
func (s script) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; its output is in %s", err, filepath.Join(s.dir, logFile))
}

// outcome is a run's error as an exit code, and in words where that is not enough.
func outcome(err error) (code int, cause string) {
	var exit *osexec.ExitError
	switch {
	case err == nil:
		return 0, ""
	case errors.Is(err, errTimeout):
		return 128 + int(syscall.SIGTERM), err.Error()
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), "signal " + status.Signal().String()
		}
		return exit.ExitCode(), ""
	}
	return 127, err.Error()
}
