// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/program/bootdisk"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec"
)

// beside holds the work of the service beside its looks. Each channel holds one while its act runs.
type beside struct {
	acts     sync.WaitGroup
	after    chan struct{} // the node is looked at for operations that have disturbed it
	staging  chan struct{} // a layer is fetched
	judging  chan struct{} // a change is judged
	starting chan struct{} // what the disk starts is seen to
	telling  chan struct{} // a report is sent
	rescuing chan struct{} // it is seen to who is let in
}

func newBeside() *beside {
	one := func() chan struct{} { return make(chan struct{}, 1) }
	return &beside{after: one(), staging: one(), judging: one(), starting: one(), telling: one(), rescuing: one()}
}

// start begins an act, where its channel says that it does not run.
func (b *beside) start(turn chan struct{}, do func()) {
	select {
	case turn <- struct{}{}:
		b.acts.Go(func() {
			defer func() { <-turn }()
			do()
		})
	default:
	}
}

// Judge looks at a change that has to pass its gates until that is decided. It returns
// the last status that there was.
func Judge(ctx context.Context, o session.Options, b *spec.Bootstrap, report func(error)) (last *spec.Status) {
	for {
		wait, st, err := node.Judge(ctx, o, b)
		switch {
		case ctx.Err() != nil:
			return last
		case err != nil:
			report(err)
			return last // the next pass looks again
		case st != nil:
			last = st
		}
		if wait == 0 || stall.Rest(ctx, wait) != nil {
			return last
		}
	}
}

// lookAfter looks at the node for the operations that have disturbed it, beside what
// else the service does, until there is nothing to look at.
func (s *service) lookAfter(ctx context.Context) {
	s.beside.start(s.beside.after, func() {
		for {
			wait, err := node.LookAfter(ctx, s.o)
			s.reportUnless(ctx, fault.But(err, track.ErrNothing)) // the next pass looks again
			if err != nil || wait == 0 || stall.Rest(ctx, wait) != nil {
				return
			}
		}
	})
}

// besideEnds is how long what the service does beside its looks has to end after them:
// what is being taken back is taken back whole and said.
const besideEnds = 20 * time.Second

// leave waits for what the service does beside its looks, which ends with them. What
// takes longer is cut, as by a power cut, and the next start goes on with it.
func (s *service) leave(within time.Duration) {
	ended := make(chan struct{})
	go func() {
		s.beside.acts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(within):
		s.o.Say("what is done beside the looks has not ended within %s: the next start goes on with it", within)
	}
}

// stageFor is how long one attempt to bring a waiting layer to the disk may take. The
// next one resumes it.
const stageFor = time.Hour

func (s *service) stage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stageFor)
	defer cancel()
	n, err := node.Read(ctx, s.o, nil)
	if err == nil {
		err = errors.Join(n.Stage(ctx), n.Close())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		s.report(err)
	}
}

// followLoader sees to what the disk starts. What the registry did not bring it is asked for in
// the rhythm of other questions.
func (s *service) followLoader(ctx context.Context) {
	if time.Now().Before(s.loaderAgain) {
		return
	}
	within, cancel := context.WithTimeout(ctx, stageFor)
	defer cancel()
	var err error
	if s.loader, err = bootdisk.Follow(within, s.o, s.loader); err != nil && ctx.Err() == nil {
		s.loaderAgain = time.Now().Add(askEvery)
		s.report(err)
	}
}

// letIn sees to who is let in, whatever else is wrong with the node, and shuts it when its time
// is over.
func (s *service) letIn(ctx context.Context) {
	s.beside.start(s.beside.rescuing, func() {
		for {
			left, err := s.rescue.Look(ctx, s.o, askEvery)
			s.reportUnless(ctx, err)
			if left == 0 || left > lookEvery || stall.Rest(ctx, left) != nil {
				return // the next look goes on, or the service ends
			}
		}
	})
}

// tell says to systemd and to the fleet what a run found.
func (s *service) tell(ctx context.Context, st *spec.Status) {
	s.tellFleet(ctx, st)
	s.notify(fmt.Sprintf("STATUS=generation %d, health %s, sync %s", st.Generation, st.Health, st.Sync))
}

// notify says something to systemd, see sd_notify(3).
func (s *service) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.o.Say("tell systemd: %v", err)
	}
}

// tellFleet reports beside the looks, one report at a time: a fleet's service that is slow
// must not keep a node from looking at itself. The node is looked at here, by turns with
// its verbs; sending waits for nobody.
func (s *service) tellFleet(ctx context.Context, st *spec.Status) {
	select {
	case s.beside.telling <- struct{}{}:
	default:
		return // the next look tells it
	}
	send := func() {}
	_, err := s.once(ctx, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
		one, to, err := n.Report(st)
		if err != nil || to == nil {
			return nil, err
		}
		if s.reporter == nil {
			if s.reporter, err = n.Reporter(); err != nil {
				s.reporter = nil
				return nil, err
			}
		}
		send = func() {
			news, err := s.reporter.Look(ctx, one, *to)
			if news {
				n.RecordReport(one)
			}
			s.reportUnless(ctx, err)
		}
		return nil, nil
	})
	s.reportUnless(ctx, err)
	s.beside.acts.Go(func() {
		defer func() { <-s.beside.telling }()
		send()
	})
}

// reportUnless says what went wrong, unless the service is about to end.
func (s *service) reportUnless(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.report(err)
	}
}

// giveBack returns to the kernel what a look took and the minute after it does not need:
// memory, and pages of the program, of which most were read by its start alone. What the
// next look needs of them is still in the page cache.
func giveBack() error {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			return fmt.Errorf("read /proc/self/maps: %q: %w", line, err)
		}
		if !strings.HasSuffix(line, " "+program+"\n") || mode[1] == 'w' { // what was written is nowhere else
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %s: %w", program, errno)
		}
	}
	return nil
}
