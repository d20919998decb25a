// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
)

// Pace says how often an intent is renewed and what that means. Between Hold and Dead
// lies the time that a request may be on its way after its sender has given up.
type Pace struct {
	Beat time.Duration // between two renewals
	Hold time.Duration // without one a publisher writes nothing more
	Look time.Duration // between two looks at another's intent
	Dead time.Duration // an intent that was not renewed for so long is nobody's
}

// Usual is the pace of publishers.
var Usual = Pace{Beat: 15 * time.Second, Hold: time.Minute, Look: 5 * time.Second, Dead: 3 * time.Minute}

// ErrLost is returned where a publisher stops because its reservation is not its own
// any more.
var ErrLost = errors.New("the reservation of this publish is lost")

// Lease is a publisher's own intent, as long as it is renewed. A publish on a layout has none:
// the methods for it are of nil, too.
type Lease struct {
	Intent
	Announcement
	After uint64 // no generation up to this one is given out again

	r *Reserver

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
func (l *Lease) put(ctx context.Context) error {
	began, err := timeSinceBoot()
	if err != nil {
		return err
	}
	digest, err := l.r.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, l.manifest(l.Announcement, len(l.digests)), l.Tag())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.digests = began, append(l.digests, digest)
	return nil
}

// CheckHeld refuses a write when the intent was not renewed for too long: others may count
// its publisher as dead.
func (l *Lease) CheckHeld() error {
	now, err := timeSinceBoot()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch silent := now - l.began; {
	case l.lost != nil:
	case err != nil:
		l.lost = err
	case silent > l.r.Pace.Hold:
		l.lost = l.lostError("fleet:%s was not renewed for %s, and another publisher may be at work", l.Tag(), silent.Round(time.Second))
	}
	return l.lost
}

func (l *Lease) lostError(format string, args ...any) error {
	return cli.WithHint(fmt.Errorf("%w: "+format, append([]any{ErrLost}, args...)...),
		"'caisson verify' tells what is published; run this again")
}

// NoteGiven notes the generation of what was written.
func (l *Lease) NoteGiven(generation uint64) {
	if l != nil {
		l.given = generation
	}
}

// CheckOwned refuses a write when another publisher has withdrawn the intent.
func (l *Lease) CheckOwned(ctx context.Context) error {
	if l == nil {
		return nil
	}
	_, err := l.r.read(ctx, l.Intent)
	if errors.Is(err, oci.ErrNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = l.lostError("another publisher has withdrawn fleet:%s", l.Tag())
		return l.lost
	}
	if err != nil {
		return fmt.Errorf("read fleet:%s: %w", l.Tag(), err)
	}
	return l.CheckHeld()
}

// renewWhile renews the intent while f runs, ends f when that is not possible any more,
// and withdraws the intent. One that is lost stays: what its publisher sent last may still
// be on its way, for as long as others wait before they count it as dead.
func (l *Lease) renewWhile(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { l.renew(ctx, cancel) })
	err := f(ctx)
	lost := l.CheckHeld()
	cancel(nil)
	beats.Wait()
	switch {
	case lost == nil:
		l.withdraw(ctx)
	case err == nil:
		return lost // what was written last may have come too late
	case !errors.Is(err, ErrLost):
		return fmt.Errorf("%w (%w)", lost, err)
	}
	return err
}

// renew renews the intent until ctx ends. What is withdrawn is not renewed.
func (l *Lease) renew(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(l.r.Pace.Beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		one, end := context.WithTimeout(ctx, l.r.Pace.Beat)
		if err := l.CheckOwned(one); err == nil {
			_ = l.put(one) // the next one may arrive; held says when it is too late
		}
		end()
		if err := l.CheckHeld(); err != nil {
			cancel(err)
			return
		}
	}
}

func (l *Lease) withdraw(ctx context.Context) { l.r.withdraw(ctx, l.Intent, l.digests) }

// Await reads the intents of others until one is renewed, which is an error, or none
// was for so long that their publishers count as dead. Those intents it withdraws. Only looks
// that a registry answered count, whatever clocks say: neither a suspended machine that waits nor
// a registry that is away makes a publisher dead.
func (r *Reserver) Await(ctx context.Context, others []Found) error {
	at := r.Pace
	for _, o := range others {
		if !o.Renewed {
			return o.takenError(at)
		}
	}
	r.Say("waits for %s, up to %s: a running publisher renews its reservation", others[0], at.Dead)
	end := time.After(2 * at.Dead)
	for looks := 0; looks <= int(at.Dead/at.Look); {
		switch silent, err := r.areUnchanged(ctx, others, at); {
		case err != nil:
			return err
		case silent:
			looks++
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return others[0].takenError(at)
		case <-time.After(at.Look):
		}
	}
	for _, o := range others {
		r.Say("%s has not renewed fleet:%s for %s and counts as dead", o, o.Tag(), at.Dead)
		r.withdrawDead(ctx, o)
	}
	return nil
}

// withdrawDead withdraws the intent of a publisher that counts as dead.
func (r *Reserver) withdrawDead(ctx context.Context, o Found) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// Should its publisher still write, then nothing else of that generation.
	mark := o.annotated(map[string]string{intentEnds: "true", intentDead: "true",
		intentFor: strconv.FormatUint(max(o.Reserves, o.Generation), 10)})
	if _, err := r.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, mark, o.Tag()); err != nil {
		r.Say("fleet:%s could not be withdrawn: %v", o.Tag(), err)
	}
}

// areUnchanged reports whether all intents are as they were read. One that is not is an error;
// a registry that does not answer is false.
func (r *Reserver) areUnchanged(ctx context.Context, others []Found, at Pace) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, at.Beat)
	defer cancel()
	for _, o := range others {
		now, err := r.read(ctx, o.Intent)
		switch {
		case errors.Is(err, oci.ErrNotFound):
			return false, cli.WithHint(fmt.Errorf("%w: it ended meanwhile (fleet:%s)", ErrTaken, o.Tag()), "run this again")
		case err != nil:
			return false, nil
		case now.digest != o.digest:
			return false, o.takenError(at)
		}
	}
	return true, nil
}

// String names the publisher of an intent, by its own words.
func (s Found) String() string {
	return fmt.Sprintf("the publisher %.80q, at work since %s", s.By, s.At.Format(time.RFC3339))
}

// takenError returns the error for a publisher that comes while another is at work.
func (s Found) takenError(at Pace) error {
	tag := s.Tag()
	err := fmt.Errorf("%w since %s (fleet:%s)", ErrTaken, s.At.Format(time.RFC3339), tag)
	if !s.Renewed {
		return cli.WithHint(err, fmt.Sprintf("run this again when it is done; if it died, its reservation ends at %s, or add --ignore-intent %s",
			s.At.Add(Honored).Format(time.RFC3339), tag))
	}
	return cli.WithHint(fmt.Errorf("%w: %.80q", err, s.By),
		fmt.Sprintf("run this again when it is done, which is by %s; if it died, that shows within %s, or add --ignore-intent %s",
			s.At.Add(life).Format(time.RFC3339), at.Dead, tag))
}

const (
	life     = 2 * time.Hour // a publisher ends within it
	maxAhead = 1000          // generations that an intent may be ahead

	// Honored is how old an intent may be that counts: life, and what clocks may differ.
	Honored = 5 * time.Hour
)

// The manifest of an intent has what it says as annotations.
const (
	typeIntent = "application/vnd.caisson.intent.v1+json"
	intentEnds = "dev.caisson.withdrawn"
	intentTag  = "dev.caisson.intent"
	intentBeat = "dev.caisson.intent.beat"
	intentBy   = "dev.caisson.intent.by"
	intentFor  = "dev.caisson.intent.generation"
	intentDead = "dev.caisson.intent.dead"
)

// Intent is a reservation by tag.
type Intent struct {
	Epoch, Generation uint64
	At                time.Time // to the second
	Nonce             string
}

// Tag returns its tag in the fleet's repository.
func (i Intent) Tag() string {
	return fmt.Sprintf("intent-%d-%d-%d-%s", i.Epoch, i.Generation, i.At.Unix(), i.Nonce)
}

// Parse reads a tag of the fleet's repository. Others than those of intents are not ok.
func Parse(tag string) (i Intent, ok bool) {
	parts := strings.Split(tag, "-")
	if len(parts) != 5 || parts[0] != "intent" {
		return i, false
	}
	var errs [3]error
	var at int64
	i.Epoch, errs[0] = strconv.ParseUint(parts[1], 10, 64)
	i.Generation, errs[1] = strconv.ParseUint(parts[2], 10, 64)
	at, errs[2] = strconv.ParseInt(parts[3], 10, 64)
	i.At, i.Nonce = time.Unix(at, 0).UTC(), parts[4]
	return i, errors.Join(errs[:]...) == nil
}

// IsIntent reports whether a tag of the fleet's repository is a publisher's
// reservation.
func IsIntent(tag string) bool {
	_, ok := Parse(tag)
	return ok
}

// IsOver reports whether an intent counts for nobody any more.
func (i Intent) IsOver(now time.Time) bool { return now.Sub(i.At) > Honored }

// Announcement holds what a publisher says beside its tag.
type Announcement struct {
	By       string
	Reserves uint64 // the generation that it gives out, which its memory may have raised
}

// manifest returns the document of an intent that is renewed for the n-th time.
func (i Intent) manifest(s Announcement, n int) []byte {
	return i.annotated(map[string]string{intentBeat: strconv.Itoa(n), intentBy: s.By, intentFor: strconv.FormatUint(s.Reserves, 10)})
}

func (i Intent) annotated(a map[string]string) []byte {
	a[intentTag] = i.Tag()
	return oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: typeIntent,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}, Annotations: a})
}

// Found is an intent as a registry serves it.
type Found struct {
	Intent
	Announcement
	Renewed bool // it can be read, and is one that its publisher renews

	digest    string
	withdrawn bool // it is marked as withdrawn
	dead      bool // others withdrew it
}

// read reads an intent. One that was withdrawn is [oci.ErrNotFound]. A registry
// that is just putting a tag again may not find what it leads to (docker-registry 2.8
// answers 500), so nothing is concluded from one answer.
func (r *Reserver) read(ctx context.Context, i Intent) (s Found, err error) {
	for range 3 {
		if s, err = r.readOnce(ctx, i); err == nil || s.withdrawn {
			return s, err
		}
		if stall.Rest(ctx, 100*time.Millisecond) != nil {
			return s, ctx.Err()
		}
	}
	return s, err
}

func (r *Reserver) readOnce(ctx context.Context, i Intent) (Found, error) {
	s := Found{Intent: i}
	resp, err := r.Registry.Source().Manifest(ctx, oci.RepoFleet, i.Tag(), "")
	if err != nil {
		return s, err
	}
	m, err := oci.ParseManifest(resp.Data)
	if err != nil {
		return s, err
	}
	s.Reserves, err = strconv.ParseUint(m.Annotations[intentFor], 10, 64)
	s.dead = m.Annotations[intentDead] == "true" && err == nil
	if s.withdrawn = m.Annotations[intentEnds] == "true"; s.withdrawn {
		return s, fmt.Errorf("fleet:%s was withdrawn: %w", i.Tag(), oci.ErrNotFound)
	}
	s.Renewed = err == nil
	s.digest, s.By = resp.Digest, m.Annotations[intentBy]
	return s, nil
}

// withdraw marks an intent, and removes what the registry lets it remove: some
// delete no tags, some keep tags of what they deleted, some delete nothing.
func (r *Reserver) withdraw(ctx context.Context, i Intent, digests []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	text := i.annotated(map[string]string{intentEnds: "true"})
	mark, err := r.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, text, i.Tag())
	if err != nil {
		r.Say("fleet:%s could not be withdrawn, which delays other publishers by %s: %v", i.Tag(), r.Pace.Dead, err)
		return
	}
	for _, reference := range append(digests, mark, i.Tag()) {
		_ = r.Registry.Delete(ctx, oci.RepoFleet, reference) // the mark does as well
	}
}
