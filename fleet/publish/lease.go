// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
)

// pace is how often an intent is renewed and what that means. Between hold and dead
// lies the time that a request may be on its way after its sender has given up.
type pace struct {
	beat time.Duration // between two renewals
	hold time.Duration // without one a publisher writes nothing more
	look time.Duration // between two looks at another's intent
	dead time.Duration // an intent that was not renewed for so long is nobody's
}

var usualPace = pace{beat: 15 * time.Second, hold: time.Minute, look: 5 * time.Second, dead: 3 * time.Minute}

func (p *Publisher) currentPace() pace {
	if p.pace != nil {
		return *p.pace
	}
	return usualPace
}

// errLost is returned where a publisher stops because its reservation is not its own
// any more.
var errLost = errors.New("the reservation of this publish is lost")

// lease is a publisher's own intent, as long as it is renewed.
type lease struct {
	p *Publisher
	intent
	announcement
	pace

	mu      sync.Mutex
	began   time.Duration // after the boot: when the last renewal that arrived was sent
	digests []string      // of all that the tag has led to
	given   uint64        // the generation that fleet:index has at last
	lost    error
}

// timeSinceBoot goes on while the machine is suspended, and nobody can set it.
func timeSinceBoot() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read the time since the boot: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// put puts the intent, or renews it.
func (l *lease) put(ctx context.Context) error {
	began, err := timeSinceBoot()
	if err != nil {
		return err
	}
	digest, err := l.p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, l.manifest(l.announcement, len(l.digests)), l.tag())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.digests = began, append(l.digests, digest)
	return nil
}

// checkHeld refuses a write when the intent was not renewed for too long: others may count
// its publisher as dead.
func (l *lease) checkHeld() error {
	now, err := timeSinceBoot()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch silent := now - l.began; {
	case l.lost != nil:
	case err != nil:
		l.lost = err
	case silent > l.hold:
		l.lost = l.lostError("fleet:%s was not renewed for %s, and another publisher may be at work", l.tag(), silent.Round(time.Second))
	}
	return l.lost
}

func (l *lease) lostError(format string, args ...any) error {
	return cli.WithHint(fmt.Errorf("%w: "+format, append([]any{errLost}, args...)...), "'caisson verify' tells what is published; run this again")
}

// noteGiven notes the generation of what was written. A publish on a layout has no lease.
func (l *lease) noteGiven(generation uint64) {
	if l != nil {
		l.given = generation
	}
}

// checkOwned refuses a write when another publisher has withdrawn the intent. A publish on
// a layout has none.
func (l *lease) checkOwned(ctx context.Context) error {
	if l == nil {
		return nil
	}
	_, err := l.p.readIntent(ctx, l.intent)
	if errors.Is(err, oci.ErrNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = l.lostError("another publisher has withdrawn fleet:%s", l.tag())
		return l.lost
	}
	if err != nil {
		return fmt.Errorf("read fleet:%s: %w", l.tag(), err)
	}
	return l.checkHeld()
}

// renewWhile renews the intent while f runs, ends f when that is not possible any more,
// and withdraws the intent. One that is lost stays: what its publisher sent last may still
// be on its way, for as long as others wait before they count it as dead.
func (l *lease) renewWhile(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { l.renew(ctx, cancel) })
	err := f(ctx)
	lost := l.checkHeld()
	cancel(nil)
	beats.Wait()
	switch {
	case lost == nil:
		l.withdraw(ctx)
	case err == nil:
		return lost // what was written last may have come too late
	case !errors.Is(err, errLost):
		return fmt.Errorf("%w (%w)", lost, err)
	}
	return err
}

// renew renews the intent until ctx ends. What is withdrawn is not renewed.
func (l *lease) renew(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(l.beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, end := context.WithTimeout(ctx, l.beat)
		if err := l.checkOwned(one); err == nil {
			_ = l.put(one) // the next one may arrive; held says when it is too late
		}
		end()
		if err := l.checkHeld(); err != nil {
			cancel(err)
			return
		}
	}
}

func (l *lease) withdraw(ctx context.Context) { l.p.withdraw(ctx, l.intent, l.digests) }
