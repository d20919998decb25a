// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/metrics"
	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/bootagent/watch"
	"github.com/caisson-os/caisson/bootagent/window"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Of the service's two rhythms, looking at the node is cheap and frequent,
// asking the registry is neither.
const (
	lookEvery = time.Minute     // with up to three seconds less, or one more
	askEvery  = 5 * time.Minute // where the site says nothing else
)

// runService applies what the loader chose, tells systemd that the node is
// ready, and then follows the fleet until a signal ends it. Where nothing could
// be applied the node is not ready: what waits for the agent goes on waiting.
func runService(ctx context.Context, a *app, args []string) error {
	f := newFlags(a, "run")
	if err := f.parse(a, args); err != nil {
		return ended(err)
	}
	// A fleet that boots together must not ask together for ever after.
	spread := rand.Float64() / 5
	asked, ready := time.Time{}, false
	staging, judging := make(chan struct{}, 1), make(chan struct{}, 1)
	a.after = make(chan struct{}, 1)
	a.beside = new(sync.WaitGroup)
	teller := newTeller(a)
	if !process.SystemdRuns() {
		a.runner = new(process.Group) // it knows only what it began itself
	}
	answers := metrics.Server{Read: func() ([]byte, error) { return os.ReadFile(filepath.Join(a.root, paths.RunMetrics)) }}
	defer answers.Close()
	a.metrics = answers.Listen
	var err error
	if a.hints, err = watch.Start(a.root, process.SystemdRuns(), a.say); err != nil {
		a.say("nothing is watched, changes are found within a minute: %v", err)
		a.hints = nil
	} else {
		defer a.hints.Close() // the process ends
	}
	if clock, err := window.WatchClock(); err != nil {
		a.say("a clock that is set is noticed within a minute: %v", err)
	} else {
		defer clock.Close() // the process ends
		a.clock = clock.Set()
	}
	defer a.leave(besideEnds) // before what it needs is closed
	for {
		began := begin()
		poll := askEvery
		st, err := once(ctx, a, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
			a.sees()
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
			cli.Report(a.err, "caisson-agent", err) // at first nothing was asked yet: only something newer helps
		case !ready:
			if st != nil { // the loader has just asked
				asked = time.Now()
				a.sayApplied(st)
			}
			if err := notify("READY=1"); err != nil {
				a.say("tell systemd: %v", err)
			}
			ready = true
		}
		every := poll + time.Duration(spread*float64(poll))
		if time.Since(asked) >= every-lookEvery/2 { // at the look that is nearest
			asked = time.Now()
			synced, err := once(ctx, a, (*node.Node).Sync)
			if err != nil && ctx.Err() == nil {
				cli.Report(a.err, "caisson-agent", err)
			}
			if synced != nil {
				st = synced
			}
			select {
			case staging <- struct{}{}: // one at a time; the lock is free meanwhile
				a.beside.Go(func() {
					defer func() { <-staging }()
					a.stage(ctx)
				})
			default:
			}
		}
		select {
		case judging <- struct{}{}: // its looks take their time, and hold no lock
			a.beside.Go(func() {
				defer func() { <-judging }()
				a.judge(ctx, a.options("run"), nil)
			})
		default:
		}
		tell := func(st *spec.Status) {
			teller.tell(ctx, st)
			if err := notify(fmt.Sprintf("STATUS=generation %d, health %s, sync %s", st.Generation, st.Health, st.Sync)); err != nil {
				a.say("tell systemd: %v", err)
			}
		}
		if st != nil {
			tell(st)
		}
		a.follow(ctx)
		a.recover(began)
		if err := giveBack(); err != nil {
			a.say("give memory back: %v", err)
		}
		a.rest(ctx, tell)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// rest waits for the next look at the node, and sees to its operations meanwhile: once,
// and while some of them run, every two seconds. What is changed meanwhile is looked at,
// and what a verb says is seen to at once.
func (a *app) rest(ctx context.Context, tell func(*spec.Status)) {
	next := time.After(lookEvery - 3*time.Second + rand.N(4*time.Second))
	for {
		var list []spec.OperationStatus
		left, waits := time.Duration(0), false
		_, err := once(ctx, a, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
			var err error
			list, err = n.Operate(ctx)
			left, waits = n.TrialEnds()
			return nil, err
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, track.ErrNothing) {
			cli.Report(a.err, "caisson-agent", err)
		}
		a.lookAfter(ctx)
		pause := 2 * lookEvery
		if slices.ContainsFunc(list, func(o spec.OperationStatus) bool { return o.State == spec.OperationRunning || o.For == spec.ForGates }) {
			pause = 2 * time.Second
		}
		if waits {
			pause = min(pause, left)
		}
		if a.heed(ctx, next, time.After(pause), tell) {
			return
		}
	}
}

// sees notes that everything which verbs have written is known.
func (a *app) sees() { a.known = a.written() }

// written is what tells one writing of the files that verbs write from the next: of the
// state, and of the book of corrections, of which clear takes entries. Times alone do not:
// a file system's clock stands still for milliseconds, and the machine's may be set back.
type written [2]struct {
	inode, size  uint64
	made, change unix.Timespec
}

func (a *app) written() (w written) {
	for i, name := range []string{"state.json", paths.Corrections} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(a.root, paths.State, name), &st); err == nil { // else there is none yet
			w[i].inode, w[i].size, w[i].made, w[i].change = st.Ino, uint64(st.Size), st.Mtim, st.Ctim
		}
	}
	return w
}

// judge looks at a change that has to pass its gates until that is decided. It returns
// the last status that there was.
func (a *app) judge(ctx context.Context, o node.Options, b *spec.Bootstrap) (last *spec.Status) {
	for {
		wait, st, err := node.Judge(ctx, o, b)
		switch {
		case ctx.Err() != nil:
			return last
		case err != nil:
			cli.Report(a.err, "caisson-agent", err)
			return last // the next pass looks again
		case st != nil:
			last = st
		}
		if wait == 0 {
			return last
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(wait):
		}
	}
}

// lookAfter looks at the node for the operations that have disturbed it, beside what
// else the service does, until there is nothing to look at.
func (a *app) lookAfter(ctx context.Context) {
	select {
	case a.after <- struct{}{}:
	default:
		return // it does
	}
	a.beside.Go(func() {
		defer func() { <-a.after }()
		for {
			wait, err := node.LookAfter(ctx, a.options("run"))
			if err != nil && ctx.Err() == nil && !errors.Is(err, track.ErrNothing) {
				cli.Report(a.err, "caisson-agent", err) // the next pass looks again
			}
			if err != nil || wait == 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// besideEnds is how long what the service does beside its looks has to end after them:
// what is being taken back is taken back whole and said.
const besideEnds = 20 * time.Second

// leave waits for what the service does beside its looks, which ends with them. What
// takes longer is cut, as by a power cut, and the next start goes on with it.
func (a *app) leave(within time.Duration) {
	ended := make(chan struct{})
	go func() {
		a.beside.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(within):
		a.say("what is done beside the looks has not ended within %s: the next start goes on with it", within)
	}
}

// stageFor is how long one attempt to bring a waiting layer to the disk may take. The
// next one resumes it.
const stageFor = time.Hour

func (a *app) stage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stageFor)
	defer cancel()
	n, err := node.Read(ctx, a.options("run"), nil)
	if err == nil {
		err = errors.Join(n.Stage(ctx), n.Close())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		cli.Report(a.err, "caisson-agent", err)
	}
}

func (a *app) sayApplied(st *spec.Status) {
	a.say("generation %d applied: %s", st.Generation, st.Health)
	for _, i := range st.Items {
		if i.Error != "" {
			a.say("%s", i.Error)
		}
	}
}

// once opens the node for one act, so that the verbs get a turn in between. What one of
// them wrote stays unknown until everything is looked at, see sees; what the act itself
// writes is known.
func once(ctx context.Context, a *app, act func(*node.Node, context.Context) (*spec.Status, error)) (*spec.Status, error) {
	n, err := node.Open(ctx, a.options("run"), nil)
	if err != nil {
		a.sees() // the next look is not before its time
		return nil, err
	}
	before := a.written()
	st, err := act(n, ctx)
	if a.known == before {
		a.sees()
	}
	return st, errors.Join(err, n.Close())
}

// notify is sd_notify(3), which is one datagram.
func notify(state string) error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	if address[0] == '@' {
		address = "\x00" + address[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close() // a datagram is sent or it is not
	_, err = conn.Write([]byte(state))
	return err
}
