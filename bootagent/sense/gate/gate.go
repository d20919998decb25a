// SPDX-License-Identifier: Apache-2.0

// Package gate says whether what a node did has worked.
//
// The health checks of an overlay are looked at until all of them have held for their time, or one
// has failed too often. Nothing waits here: [Prober.Look] looks once at what is due and returns a [Record]
// of it; [Record.Judge] is the decision, of a record and a time alone. The record is
// kept in a file of this boot, so that an agent that was restarted goes on where it
// was. What comes of a verdict is decided in package decide.
package gate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Record describes a change that has not proved itself. Times are seconds
// since the kernel started: a clock that is set must neither pass nor fail anything.
type Record struct {
	Root    string              `json:"root"`    // id of the root that was changed
	Overlay string              `json:"overlay"` // digest of what was put in effect
	Began   int64               `json:"began"`
	Reach   bool                `json:"reach,omitempty"`  // [Reach] is one of the checks
	Checks  map[string]Progress `json:"checks,omitempty"` // by name
}

// Progress holds the results of one check.
type Progress struct {
	Looked   int64  `json:"looked"`          // when the last look ended
	Since    int64  `json:"since,omitempty"` // since when it holds without a failure, 0 where it does not
	Failures int64  `json:"failures,omitempty"`
	Mark     string `json:"mark,omitempty"` // by which one run of a unit differs from the next
	Why      string `json:"why,omitempty"`  // the last failure
}

// Of reports whether the record is about this overlay on this root.
func (r *Record) Of(root, overlay string) bool {
	return r != nil && r.Root == root && r.Overlay == overlay
}

// Reach is the check of a boot of a new generation: the registry, which was reached before it,
// is to be reached from the system, too, at the latest after 16 looks: three to five minutes.
// Any answer counts. No check of a site can have its name.
var Reach = spec.HealthCheck{Name: "registry is reached", Timeout: 10, Interval: 10, Retries: 15}

// State is how a verdict stands.
type State string

// States of a verdict.
const (
	Waiting State = "waiting"
	Passed  State = "passed"
	Failed  State = "failed"
)

// Verdict holds the outcome of a gate.
type Verdict struct {
	State State
	Check string // of Failed: its name
	Why   string // what is waited for, or what failed
	Until int64  // of Waiting: when it passes if everything goes on to hold; 0 where something does not hold
	Next  int64  // of Waiting: when to look again
}

// Judge decides. All checks must hold at the same time: one that held before and
// fails while another is waited for holds no more.
func (r *Record) Judge(checks []spec.HealthCheck) Verdict {
	v := Verdict{State: Passed, Next: math.MaxInt64}
	wait := func(why string) {
		if v.State == Passed {
			v.State, v.Why = Waiting, why
		}
	}
	holds := true
	for _, c := range checks {
		p := r.Checks[c.Name]
		switch {
		case p.Failures > c.Retries:
			why := fmt.Sprintf("%s: %s", c.Name, p.Why)
			if c.Retries > 0 {
				why += fmt.Sprintf(" (failed %d times)", p.Failures)
			}
			return Verdict{State: Failed, Check: c.Name, Why: why}
		case p.Since == 0:
			holds = false
			wait(c.Name + cmp.Or(plain.With("", ": ", p.Why), " was not looked at yet"))
		case p.Looked-p.Since < c.Soak:
			v.Until = max(v.Until, p.Since+c.Soak)
			wait(fmt.Sprintf("%s holds, and must for %d s", c.Name, c.Soak))
		}
		v.Next = min(v.Next, due(c, p))
	}
	if !holds {
		v.Until = 0
	}
	if v.State == Passed {
		return Verdict{State: Passed, Why: fmt.Sprintf("%d health checks hold", len(checks))}
	}
	return v
}

// NextLook is how long it takes until a check is to be looked at, up is how long the kernel runs.
func (r *Record) NextLook(checks []spec.HealthCheck, up time.Duration) time.Duration {
	return max(time.Second, time.Duration(r.Judge(checks).Next-Seconds(up))*time.Second)
}

// Seconds is a time since the kernel started as a record has it.
func Seconds(up time.Duration) int64 { return int64(up / time.Second) }

// due is when a check is to be looked at.
func due(c spec.HealthCheck, p Progress) int64 {
	if p.Looked == 0 {
		return 0
	}
	return p.Looked + c.Interval
}

// note returns what is known of a check after one more look, which ended at now. A
// unit that was started again did not hold in between.
func (p Progress) note(now int64, mark string, err error) Progress {
	if err == nil && p.Since != 0 && mark != p.Mark {
		err = errors.New("it was restarted")
	}
	p.Looked, p.Mark = max(now, 1), mark
	switch {
	case err != nil:
		p.Since, p.Why = 0, brief(err)
		p.Failures++
	case p.Since == 0:
		p.Since = p.Looked
	}
	return p
}

// brief is an error in one line of a length that a status can show.
func brief(err error) string {
	const most = 300
	if text := []rune(err.Error()); len(text) > most {
		return string(text[:most]) + "…"
	}
	return err.Error()
}

// limit caps a record that is read back.
const limit = 1 << 20

// Save keeps the record.
func (r *Record) Save(name string) error {
	data, err := spec.Encode(r)
	if err == nil {
		err = durable.WriteFile(name, data, 0o600)
	}
	return fault.In(err, "keep the record of the gates")
}

// Load reads what Save kept; nil where there is none, and where what is there cannot
// be read: then everything is looked at from the start.
func Load(name string) (*Record, error) {
	data, err := ownfiles.ReadFile(name, limit)
	if err != nil {
		return nil, fault.In(fault.But(err, fs.ErrNotExist), "read the record of the gates")
	}
	var r Record
	if json.Unmarshal(data, &r) != nil {
		return nil, nil
	}
	return &r, nil
}

// dueNow returns the checks that are to be looked at.
func (r *Record) dueNow(checks []spec.HealthCheck, now int64) []spec.HealthCheck {
	return slices.DeleteFunc(slices.Clone(checks), func(c spec.HealthCheck) bool { return due(c, r.Checks[c.Name]) > now })
}

// Units says what a unit does: the word of systemd for its state, and what tells one
// run of it from the next.
type Units interface {
	Run(ctx context.Context, unit string) (state, run string, err error)
}

// Prober looks at checks.
type Prober struct {
	Root   string // prefix of files, for tests
	Log    string // directory for the output of commands
	Runner process.Runner
	Units  Units                           // nil where systemd does not run
	Now    func() int64                    // seconds since the kernel started
	Reach  func(ctx context.Context) error // asks the registry, for the check [Reach]
}

// Look looks once at the checks that are due, at all of them together, and returns
// the record with what was found. It takes as long as the slowest of them.
func (p Prober) Look(ctx context.Context, r Record, checks []spec.HealthCheck) Record {
	list := r.dueNow(checks, p.Now())
	found := make([]Progress, len(list))
	var all sync.WaitGroup
	for i, c := range list {
		all.Go(func() {
			mark, err := p.probe(ctx, c)
			found[i] = r.Checks[c.Name].note(p.Now(), mark, err)
		})
	}
	all.Wait()
	r.Checks = maps.Clone(r.Checks)
	if r.Checks == nil {
		r.Checks = map[string]Progress{}
	}
	for i, c := range list {
		if ctx.Err() == nil { // else what was found is that somebody ended this
			r.Checks[c.Name] = found[i]
		}
	}
	return r
}

func (p Prober) probe(ctx context.Context, c spec.HealthCheck) (mark string, err error) {
	if err := rules.HealthCheck(c); err != nil && c.Name != Reach.Name {
		return "", err // published by a tool that did not check
	}
	timeout := time.Duration(c.Timeout) * time.Second
	if len(c.Command) > 0 {
		leave, err := p.turn(ctx, c, timeout)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	late := fmt.Errorf("no answer within %v", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	mark, err = p.look(ctx, c, timeout)
	if err != nil && ctx.Err() != nil && len(c.Command) == 0 { // a command says itself how it ended
		err = context.Cause(ctx)
	}
	return mark, err
}

// look looks at what a check is about. A check that is about nothing that is known here
// does not hold.
func (p Prober) look(ctx context.Context, c spec.HealthCheck, timeout time.Duration) (mark string, err error) {
	switch {
	case c.Name == Reach.Name:
		return "", p.Reach(ctx)
	case len(c.Command) > 0:
		return "", p.command(ctx, c, timeout)
	case c.Unit != "":
		return p.unit(ctx, c.Unit)
	case c.TCP != "":
		return "", connect(ctx, c.TCP)
	case c.HTTP != "":
		return "", get(ctx, c)
	case c.File != "":
		name := filepath.Join(p.Root, c.File)
		if stall.Within(ctx, "look at "+name, func() error { _, err := os.Stat(name); return err }) != nil {
			return "", errors.New("the file is not there")
		}
		return "", nil
	}
	return "", fmt.Errorf("check %q: this agent cannot look at what it is about", c.Name)
}

func (p Prober) unit(ctx context.Context, name string) (mark string, err error) {
	if p.Units == nil {
		return "", errors.New("systemd does not run here")
	}
	state, run, err := p.Units.Run(ctx, name)
	if err == nil && state != "active" && state != "reloading" && state != "refreshing" {
		err = fmt.Errorf("%s is %s", name, state)
	}
	return run, err
}

func connect(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// get asks for a page. It follows nobody elsewhere, and reads no more than the head.
func get(ctx context.Context, c spec.HealthCheck) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.HTTP, nil)
	if err != nil {
		return err
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // its head is all that is wanted
	switch got := answer.StatusCode; {
	case c.Status == 0 && (got < 200 || got > 299):
		return fmt.Errorf("it answers %d", got)
	case c.Status != 0 && got != c.Status:
		return fmt.Errorf("it answers %d, not %d", got, c.Status)
	}
	return nil
}

// service is the name of the service that runs a check's program.
func service(c spec.HealthCheck) string {
	return fmt.Sprintf("caisson-gate-%x", sha256.Sum256([]byte(c.Name)))[:29]
}

// turn waits until no other process runs the program of a check: a change and an operation may
// be judged by it at once, by the service and by a verb. The wait is not the program's time.
func (p Prober) turn(ctx context.Context, c spec.HealthCheck, timeout time.Duration) (leave func(), err error) {
	if err := os.MkdirAll(p.Log, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(p.Log, service(c)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*(timeout+ending))
	defer cancel()
	if err := stall.Lock(ctx, lock, false); err != nil {
		_ = lock.Close() // it was not locked
		return nil, fmt.Errorf("wait for another look to end: %w", err)
	}
	return func() { _ = lock.Close() }, nil // which gives the turn back
}

// ending limits the time that systemd may take to end a program whose time is over.
const ending = time.Minute

// command runs a program as a service of its own, which ends with the look.
func (p Prober) command(ctx context.Context, c spec.HealthCheck, timeout time.Duration) error {
	name := service(c)
	log := filepath.Join(p.Log, name+".log")
	// What an agent left that was killed meanwhile.
	if err := p.Runner.End(name + ".service"); err != nil {
		return err
	}
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	id, err := p.Runner.Start(ctx, process.Command{Name: name, Args: c.Command, Dir: "/", Log: log, Limit: timeout,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
			"CAISSON_CHECK=" + c.Name}})
	if err != nil {
		return err
	}
	go process.KeepSmall(p.Runner, id, log)
	// Its limit ends it; systemd may take a moment for that.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+ending)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // the agent is ended
			cancel()
		}
	})
	defer stop()
	if err := errors.Join(p.Runner.Wait(patient, id), p.Runner.End(id)); err != nil {
		if last := lastLine(log); last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	}
	return nil
}

// lastLine returns the last line of a program's output, for people.
func lastLine(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer f.Close() // only read
	const tail = 1 << 10
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text)
	return strings.TrimSpace(string(text[bytes.LastIndexByte(text, '\n')+1:]))
}
