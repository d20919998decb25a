// SPDX-License-Identifier: Apache-2.0

// Package program is the agent as a service: the rhythm in which a node is looked at, asks
// its registry, judges what changed, runs its operations and reports.
//
// What is done and when it may be is decided below package node. The service opens the node
// for one act at a time, so that the verbs get a turn in between; what takes long, such as
// fetching a layer, is done beside the looks without the node's lock.
//
// [EnrollHost] makes a host that caisson did not boot a node, before there is a service.
package program

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/rescue/letin"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/sense/watch"
	"github.com/caisson-os/caisson/bootagent/tell/metrics"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Of the two rhythms, looking at the node is cheap and frequent, asking the registry is
// neither.
const (
	lookEvery = time.Minute     // with up to three seconds less, or one more
	askEvery  = 5 * time.Minute // where the site says nothing else
)

// DaemonConfig holds the service's settings.
type DaemonConfig struct {
	Node   session.Options // the service adds what watches, answers and runs programs
	Report func(error)     // says what went wrong to whom the service is started by
}

// service is the loop and what it does beside its looks.
type service struct {
	o        session.Options
	report   func(error)
	hints    *watch.Watch    // nil where there is none
	known    written         // what is known of what verbs write
	rested   time.Time       // before it, no hint is heeded
	lost     bool            // hints: everything is looked at
	clock    <-chan struct{} // it receives when the clock was set; nil where nobody watches it
	beside   *beside
	reporter *post.Reporter
	rescue   letin.Keeper

	loader      string    // what of the disk's loaders was seen to
	loaderAgain time.Time // before it, the registry is not asked for one
}

func newService(c DaemonConfig) *service {
	return &service{o: c.Node, report: c.Report, beside: newBeside()}
}

// RunDaemon applies what the loader chose, tells systemd that the node is ready, and then
// follows the fleet until the context ends. Where nothing could be applied the node is not
// ready: what waits for the agent goes on waiting.
func RunDaemon(ctx context.Context, c DaemonConfig) error {
	s := newService(c)
	// A fleet that boots together must not ask together for ever after.
	spread := rand.Float64() / 5
	asked, ready := time.Time{}, false
	if !process.SystemdRuns() {
		s.o.Runner = new(process.Group) // it knows only what it began itself
	}
	answers := metrics.Server{Read: func() ([]byte, error) { return os.ReadFile(filepath.Join(s.o.Root, paths.RunMetrics)) }}
	defer answers.Close()
	s.o.Metrics = answers.Listen
	defer s.watch()()
	defer s.leave(besideEnds) // before what it needs is closed
	for {
		began := begin()
		s.letIn(ctx)
		poll := askEvery
		st, err := s.once(ctx, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
			s.sees()
			st, err := n.Apply(ctx)
			poll = cmp.Or(n.Poll(), askEvery)
			return st, err
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
			return err // no later pass may more
		case err != nil && !errors.Is(err, track.ErrNothing):
			s.report(err) // at first nothing was asked yet: only something newer helps
		case !ready:
			if st != nil { // the loader has just asked
				asked = time.Now()
				s.sayApplied(st)
			}
			s.notify("READY=1")
			ready = true
		}
		every := poll + time.Duration(spread*float64(poll))
		if time.Since(asked) >= every-lookEvery/2 { // at the look that is nearest
			asked = time.Now()
			synced, err := s.once(ctx, (*node.Node).Sync)
			s.reportUnless(ctx, err)
			if synced != nil {
				st = synced
			}
			s.letIn(ctx)                                              // the key that let an operator in may be revoked
			s.beside.start(s.beside.staging, func() { s.stage(ctx) }) // the lock is free meanwhile
		}
		s.beside.start(s.beside.judging, func() { Judge(ctx, s.o, nil, s.report) }) // its looks take their time, and hold no lock
		s.beside.start(s.beside.starting, func() { s.followLoader(ctx) })
		if st != nil {
			s.tell(ctx, st)
		}
		s.follow(ctx)
		s.recover(began)
		s.rest(ctx)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// watch has the kernel and systemd tell of changes, until what it returns is called.
func (s *service) watch() (end func()) {
	var open []io.Closer
	hints, err := watch.Start(s.o.Root, process.SystemdRuns(), items.Hints, s.o.Say)
	if err != nil {
		s.o.Say("nothing is watched, changes are found within a minute: %v", err)
	} else {
		open = append(open, hints)
		s.hints, s.o.Rival, s.o.Hints = hints, hints.Rival, hints.Of
	}
	clock, err := uptime.WatchClock()
	if err != nil {
		s.o.Say("a clock that is set is noticed within a minute: %v", err)
	} else {
		open = append(open, clock)
		s.clock = clock.Set()
	}
	return func() {
		for _, c := range open {
			c.Close() // the process ends
		}
	}
}

// rest waits for the next look at the node, and sees to its operations meanwhile: once,
// and while some of them run, every two seconds. What is changed meanwhile is looked at,
// and what a verb says is seen to at once.
func (s *service) rest(ctx context.Context) {
	next := time.After(lookEvery - 3*time.Second + rand.N(4*time.Second))
	for given := false; ; {
		var list []spec.OperationStatus
		left, waits := time.Duration(0), false
		_, err := s.once(ctx, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
			var err error
			list, err = n.Operate(ctx)
			left, waits = n.TrialEnds()
			return nil, err
		})
		s.reportUnless(ctx, fault.But(err, track.ErrNothing))
		s.lookAfter(ctx)
		pause, busy := 2*lookEvery, false
		if slices.ContainsFunc(list, func(o spec.OperationStatus) bool { return o.State == spec.OperationRunning || o.For == spec.ForGates }) {
			pause, busy = 2*time.Second, true
		}
		if waits {
			pause = min(pause, left)
		}
		if !given && !busy { // after the last thing that a quiet minute does: all of it would come back
			given = true
			fault.Say(s.o.Say, fault.In(giveBack(), "give memory back"))
		}
		if s.heed(ctx, next, time.After(pause)) {
			return
		}
	}
}

func (s *service) sayApplied(st *spec.Status) {
	s.o.Say("generation %d applied: %s", st.Generation, st.Health)
	for _, i := range st.Items {
		if i.Error != "" {
			s.o.Say("%s", i.Error)
		}
	}
}

// sees notes that everything which verbs have written is known.
func (s *service) sees() { s.known = s.written() }

// written tells one writing of the files that verbs write from the next: of the
// state, and of the book of corrections, of which clear takes entries. Times alone do not:
// a file system's clock stands still for milliseconds, and the machine's may be set back.
type written [2]struct {
	inode, size  uint64
	made, change unix.Timespec
}

func (s *service) written() (w written) {
	for i, name := range []string{"state.json", paths.Corrections} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(s.o.Root, paths.State, name), &st); err == nil { // else there is none yet
			w[i].inode, w[i].size, w[i].made, w[i].change = st.Ino, uint64(st.Size), st.Mtim, st.Ctim
		}
	}
	return w
}

// once opens the node for one act, so that the verbs get a turn in between. What one of
// them wrote stays unknown until everything is looked at, see sees; what the act itself
// writes is known.
func (s *service) once(ctx context.Context, act func(*node.Node, context.Context) (*spec.Status, error)) (*spec.Status, error) {
	n, err := node.Open(ctx, s.o, nil)
	if err != nil {
		s.sees() // the next look is not before its time
		return nil, err
	}
	before := s.written()
	st, err := act(n, ctx)
	if s.known == before {
		s.sees()
	}
	return st, errors.Join(err, n.Close())
}

// idle is how many times the processor time of an early look the next one is kept
// waiting: in a storm of events, early looks take no more than a twentieth of
// a processor. What a look waits for, a lock or a slow disk, costs nobody anything.
const idle = 19

// effort measures a look from [begin] on.
type effort struct {
	at   time.Time
	used time.Duration
}

func begin() effort { return effort{time.Now(), used()} }

// rest is how long the next early look is kept waiting. What the program did meanwhile
// beside the look counts, too, but never as more than one processor.
func (e effort) rest() time.Duration { return idle * min(time.Since(e.at), used()-e.used) }

// used returns the processor time of the program and of the children that it waited for.
func used() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err == nil { // it fails for other arguments only
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// heed looks early at what may have changed, until something else is due. It returns
// true when everything is to be looked at: in its turn, because a verb was called, or
// because the clock was set.
func (s *service) heed(ctx context.Context, next, due <-chan time.Time) (over bool) {
	for {
		if s.written() != s.known {
			return true // a verb was called
		}
		var hinted <-chan struct{}
		var rested <-chan time.Time
		switch wait := time.Until(s.rested); {
		case s.hints == nil:
		case wait > 0:
			rested = time.After(wait)
		default:
			hinted = s.hints.Ready()
		}
		select {
		case <-ctx.Done():
			return true
		case <-next:
			return true
		case <-due:
			return false
		case <-s.clock: // windows may be open that were not, and other times have come
			return true
		case <-rested:
		case <-time.After(2 * time.Second):
		case <-hinted:
			if s.early(ctx) {
				return true
			}
		}
	}
}

// early looks at what the watch has hinted at. Where it may have lost something, it
// returns true: everything is looked at.
func (s *service) early(ctx context.Context) (everything bool) {
	began := begin()
	defer func() { s.rested = time.Now().Add(began.rest()) }()
	hints := s.hints.Take()
	if hints.All {
		s.lost = true
		return true
	}
	st, err := s.once(ctx, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
		if len(hints.Refused) > 0 {
			if err := n.NoteRefused(hints.Refused); err != nil {
				return nil, err
			}
		}
		if len(hints.Kinds) == 0 {
			return nil, nil
		}
		return n.Early(ctx, hints.Kinds)
	})
	s.reportUnless(ctx, fault.But(err, track.ErrNothing))
	if st != nil {
		s.tell(ctx, st)
	}
	return false
}

// recover is the same for a look at everything that a storm has brought about.
func (s *service) recover(began effort) {
	if s.lost {
		s.lost, s.rested = false, time.Now().Add(began.rest())
	}
}

// follow tells the watch what the node runs.
func (s *service) follow(ctx context.Context) {
	if s.hints == nil {
		return
	}
	var o *spec.Overlay
	var protected []string
	_, err := s.once(ctx, func(n *node.Node, _ context.Context) (*spec.Status, error) {
		var err error
		o, err = n.Overlay()
		protected = n.Protected()
		return nil, err
	})
	if err == nil { // else it was said
		s.hints.Follow(o, protected)
	}
}
