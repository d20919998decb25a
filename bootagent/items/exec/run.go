// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
)

// run starts the script and, unless it goes to the background, waits for it.
func (i *Item) run(ctx context.Context, s script, last record) error {
	r := following(s.want, last, i.scopes.Kernel)
	r.Root, r.Boot, r.Start = i.scopes.Root, i.scopes.Kernel, i.now().UTC()
	finish := func(err error) error {
		_, wrote := i.settled(ctx, s, r, err)
		if errors.Is(err, process.ErrUnknown) || errors.Is(err, process.ErrNoAnswer) {
			return wrote // a later pass wrote it down, or does; or it was cut
		}
		i.sayEnd(s)
		if wrote != nil || err == nil {
			return errors.Join(err, wrote)
		}
		return failure{err}
	}
	if err := s.write(r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.want.Blocking != "background" {
		defer item.BeginScript(ctx, s.limit())()
	}
	id, err := i.start(ctx, s)
	if err != nil && !errors.Is(err, process.ErrRuns) { // an agent that was killed before it wrote the id down began it
		return finish(err)
	}
	r.Unit = id
	if err := s.write(r); err != nil {
		return errors.Join(err, i.runner.End(id))
	}
	if s.want.Blocking == "background" {
		i.background.Go(func() {
			// It outlives the pass that started it.
			err := finish(i.wait(context.WithoutCancel(ctx), s, id))
			if err == nil {
				return
			}
			i.log("run script %q in the background: %v", s.want.Name, err) // the pass may be over
			if _, own := errors.AsType[failure](err); !own {
				i.mu.Lock()
				defer i.mu.Unlock()
				i.late = append(i.late, fmt.Errorf("run script %q in the background: %w", s.want.Name, err))
			}
		})
		return nil
	}
	err = i.wait(ctx, s, id)
	if ctx.Err() != nil {
		return ctx.Err() // it was cut: the record stays unfinished
	}
	return finish(err)
}

// start puts the script in its directory and starts it with a log of its own.
func (i *Item) start(ctx context.Context, s script) (id string, err error) {
	if err := durable.WriteFile(filepath.Join(s.dir, s.want.Name), []byte(s.want.Data), 0o700); err != nil {
		return "", err
	}
	log := filepath.Join(s.dir, logFile)
	if err := os.Rename(log, log+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id, err = i.runner.Start(ctx, process.Command{
		Name: "caisson-exec-" + s.hash[:16], Args: command(s.want), Dir: s.dir, Log: log, Limit: s.limit(),
		MemoryMax: s.want.MemoryMax, CPUQuota: s.want.CPUQuota, TasksMax: s.want.TasksMax,
		Secrets: i.files(s.want), Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=/root", "LANG=C.UTF-8"}, environ(s.want.Env)...),
	})
	if errors.Is(err, process.ErrRuns) { // it writes into the log that it began with
		_ = os.Rename(log+".old", log) // without it people look into the older one
	}
	return id, err
}

// wait waits for the script and keeps its log small, also at the end: a script
// can write much between two looks.
func (i *Item) wait(ctx context.Context, s script, id string) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- i.runner.Wait(waiting, id) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil {
				err = errors.Join(ctx.Err(), i.runner.End(id))
			}
			return errors.Join(s.explain(err), process.CapLog(filepath.Join(s.dir, logFile)))
		case <-tick.C:
			if err := process.CapLog(filepath.Join(s.dir, logFile)); err != nil {
				return errors.Join(err, i.runner.End(id))
			}
		}
	}
}

// saidLines and saidBytes bound what of a script's output is said: the rest is in its
// log.
const (
	saidLines = 20
	saidBytes = 4 << 10
)

// sayEnd says how a script's output ends, where logs are gathered.
func (i *Item) sayEnd(s script) {
	if len(s.want.SecretNames()) > 0 {
		return // it may have printed them: its log is root's alone
	}
	f, err := ownfiles.Open(filepath.Join(s.dir, logFile))
	if err != nil {
		return // it has none
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-saidBytes), saidBytes))
	if err != nil {
		return // the message about the failure says where it is
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for _, line := range lines[max(0, len(lines)-saidLines):] {
		if line != "" {
			i.log("script %q said: %s", s.want.Name, line)
		}
	}
}

// explain adds where to look.
func (s script) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; its output is in %s", err, filepath.Join(s.dir, logFile))
}

// ended is the record of a run that has ended with err.
func (r record) ended(err error, now time.Time) record {
	r.End, r.Unit = now.UTC(), ""
	var exit *process.Exit
	switch {
	case err == nil:
	case errors.As(err, &exit):
		if r.Exit = exit.Status(); exit.Code == 0 || exit.Cause != "" {
			r.Cause = exit.Error()
		}
	default:
		r.Exit, r.Cause = 127, err.Error()
	}
	return r
}

// pace is how long a script without an interval waits for its next run in the same boot,
// also after a failure: as in Divingbell, which began its next pass about a minute after
// the last one, and at the start of a pod at once.
const pace = 60

// due reports whether w is to run now, and when it is not, in words when it will
// be. Intervals count from the start of the last run, also over boots unless the
// config forgets them; counts are those of one boot.
func due(w spec.Exec, r record, boot string, now time.Time) (run bool, next string) {
	if !r.finished() {
		return true, "" // it never ran, or was cut
	}
	interval, limit, count, forget := w.RerunInterval, w.RerunMax, r.Rerun, w.RerunForget
	if r.Exit != 0 {
		interval, limit, count, forget = cmp.Or(w.RetryInterval, w.RerunInterval), w.RetryMax, r.Retry, w.RetryForget
	}
	switch {
	case w.Rerun == "never", w.Rerun == "once_successfully" && r.Exit == 0:
		return false, "its policy never repeats it"
	case limit > 0 && count >= limit && r.Boot == boot:
		return false, "it was repeated as often as allowed"
	case r.Boot != boot && (forget || interval == 0):
		return true, ""
	case interval < 0:
		return false, "it is never repeated by time"
	}
	at := r.Start.Add(time.Duration(min(cmp.Or(interval, pace), 1<<32)) * time.Second) // 136 years do not overflow
	if now.Before(r.Start) {
		return true, "" // the clock was set back: better too early than never
	}
	return !now.Before(at), "it is tried again at " + at.UTC().Format(time.RFC3339)
}

// lasts reports whether a record counts on another root too: for the machine if
// the config says so, and for as long as an interval goes on.
func lasts(w spec.Exec, r record) bool {
	if w.Once == "per-machine" {
		return true
	}
	interval := w.RerunInterval
	if r.failed() {
		interval = w.RetryInterval
	}
	return (w.Rerun == "" || w.Rerun == "always") && interval > 0
}

// following is the record of a run that starts now after r.
func following(w spec.Exec, r record, boot string) record {
	next := record{Name: w.Name, Keep: w.Once == "per-machine"}
	if r.Boot == boot {
		next.Rerun, next.Retry = r.Rerun, r.Retry
	}
	switch {
	case r.none() || r.Boot != boot:
	case r.failed():
		next.Retry++
	case r.finished():
		next.Rerun++
		next.Retry = 0
	}
	return next
}
