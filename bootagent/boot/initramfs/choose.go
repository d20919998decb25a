// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/loader"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
)

// chooser finds the generation that this boot runs.
type chooser struct {
	say     say
	made    func() // notes progress
	trace   *uptime.Recorder
	machine *machine
	disk    *stateDisk
	notes   *notes
	ways    *ways
	attempt *attempt
	prep    *preparer
	help    *help

	decided decide.Observer
	sync    spec.Sync // of the last answer, for the boot record
	detail  string    // likewise
}

// choice names the generation and layer that a boot runs.
type choice struct {
	overlay *spec.Overlay
	*prepared
	source spec.Source
	had    string // id of the root that the registry had, "" where it was not asked
	sync   spec.Sync
	detail string
}

// chosen returns the choice of what was prepared.
func (c *chooser) chosen(source spec.Source, found *track.Found, root *prepared) *choice {
	return &choice{overlay: &found.Overlay, prepared: root, source: source, sync: c.sync, detail: c.detail}
}

// choose returns the overlay and the layer that this boot will run, all of it
// verified and in the store. What it tries, and in which order, is decided by the table of
// package decide: the registry, a medium, what ran well before, and then all of it again.
func (c *chooser) choose(ctx context.Context) (*choice, error) {
	begun, tries := time.Now(), 0
	hindered := begun // since when what failed may come of the arguments of a kexec
	for pause := c.machine.limits.pause; ; pause = min(2*pause, 30*time.Second) {
		c.made()
		tries++
		newest := c.newest(ctx, c.ask, false)
		if errors.Is(newest.err, errStartOver) {
			return nil, newest.err
		}
		var older notBegun
		c.ways.heard = newest.err == nil || reached(newest.err) || errors.As(newest.err, &older)
		if !argumentsMay(newest.err, c.prep.brought) {
			hindered = time.Now()
		}
		if newest.step.Act == decide.Enter {
			made := c.chosen(spec.SourceFetched, newest.found, newest.root)
			made.had, newest.err = spec.RootID(made.overlay, made.overlay.Layer)
			return made, newest.err
		}
		c.sayNot(newest)
		if newest.step.Act == decide.AskMedium {
			carried := c.fromMedium(ctx)
			if errors.Is(carried.err, errStartOver) {
				return nil, carried.err
			}
			if carried.step.Act == decide.Enter {
				return c.chosen(spec.SourceFetched, carried.found, carried.root), nil
			}
		}
		why, failed := c.detail, screen.Failure{Tries: tries, Since: time.Since(begun), Err: newest.err, Next: pause}
		found, root, err := c.fallBack(ctx)
		if errors.Is(err, errStartOver) {
			return nil, err
		}
		step := c.decided.Next(c.backFacts(err == nil, hindered))
		c.notes.transition = step.Name
		switch step.Act {
		case decide.Enter:
			c.say("booting the last good overlay, generation %d", found.Generation.Generation)
			c.notes.note(about(found.Generation,
				spec.Event{Event: spec.EventFellBack, Transition: newest.step.Name, Why: why, Did: "ran the last good generation"}))
			return c.chosen(spec.SourceCached, found, root), nil
		case decide.StartOver:
			return nil, fmt.Errorf("%w: %s: %w", errStartOver, step.Why, newest.err)
		case decide.AskAgain:
			c.showStuck(ctx, failed, err)
			if tries >= hintTries {
				c.help.hint(ctx, why)
			}
		}
		time.Sleep(pause)
	}
}

// showStuck shows why nothing is entered; back is why nothing that ran well before is.
func (c *chooser) showStuck(ctx context.Context, failed screen.Failure, back error) {
	if !errors.Is(back, track.ErrNothing) {
		c.say("no way back: %v", back)
		if c.disk.hasGood() { // else it is the one that was just asked for
			failed.NoWay = back
		}
	}
	failed.Rescue = c.help.letIn(ctx)
	c.ways.show(failed)
}

// asking asks what there is for this node.
type asking func(context.Context) (*track.Found, error)

// asked holds the result of asking for the newest generation.
type asked struct {
	found *track.Found
	root  *prepared // of Enter
	step  decide.Step
	err   error // why found is not entered
}

// newest asks for the newest generation, and prepares what is to be entered.
func (c *chooser) newest(ctx context.Context, ask asking, medium bool) (a asked) {
	a.found, a.err = ask(ctx)
	a.step = c.decided.Next(c.askedFacts(a.found, a.err, medium))
	c.notes.transition = a.step.Name
	switch a.step.Act {
	case decide.AskMedium:
		return a
	case decide.FallBack:
		if a.err == nil {
			a.err = notBegun{a.found.Generation.Generation, a.step}
		}
		return a
	case decide.EnterOld:
		good, err := c.ways.follower().Good(false)
		if err != nil {
			a.err, a.step = err, c.decided.Next(fetchFacts(err, medium))
			return a
		}
		a.found = good[0]
	}
	c.say("overlay of node %s, generation %d, layer %s", a.found.Overlay.Node, a.found.Generation.Generation, a.found.Generation.Layer)
	if a.root, a.err = c.prep.prepareInTime(ctx, c.ways.source, a.found); !errors.Is(a.err, errStartOver) {
		a.step = c.decided.Next(fetchFacts(a.err, medium))
	}
	return a
}

// sayNot says why what was asked for is not entered.
func (c *chooser) sayNot(a asked) {
	c.sync, c.detail = track.Describe(a.err)
	var older notBegun
	if errors.As(a.err, &older) || tooLittle(a.err) || errors.Is(a.err, errSlow) {
		c.sync = spec.SyncBehind
	}
	c.say("%s: %v", c.sync, a.err)
	if c.disk.device != "" && track.OfDisk(a.err) {
		c.disk.trouble("state disk %s: %v", c.disk.device, a.err)
		c.disk.again(a.err)
	}
	c.notes.note(events.Blame(spec.Event{Event: spec.EventAsked, Transition: a.step.Name}, a.err))
}

// notBegun is why a newer generation is not begun.
type notBegun struct {
	generation uint64
	step       decide.Step
}

func (n notBegun) Error() string { return fmt.Sprintf("generation %d: %s", n.generation, n.step.Why) }

// askedFacts returns the facts that decide how to go on after asking.
func (c *chooser) askedFacts(found *track.Found, err error, medium bool) *decide.Facts {
	f := &decide.Facts{Event: decide.Boot, Offer: decide.Offer{Medium: medium}}
	if err != nil {
		f.Offer.Failed, f.Offer.Unreached = true, !reached(err)
		return f
	}
	f.Offer.Held, f.Offer.Unchanged, f.Offer.Generation = found.Held, found.Unchanged, found.Generation
	f.Offer.Attempts, f.Offer.Uncounted = c.attempt.begun(found.Generation), c.disk.readOnly != nil
	if s, err := c.disk.folder.Load(); err == nil { // else nothing is known to fall back on
		f.Best = s.Best()
	}
	return f
}

// fetchFacts returns the facts that decide how to go on after preparing a root.
func fetchFacts(err error, medium bool) *decide.Facts {
	f := &decide.Facts{Event: decide.Fetched, Fetch: decide.Fetch{Medium: medium}}
	if err != nil {
		f.Fetch.Why, f.Fetch.Late, f.Fetch.TooLarge, f.Fetch.Unreached = err.Error(), errors.Is(err, errSlow), tooLittle(err), !reached(err)
	}
	return f
}

// ask brings the network up where it is not, and syncs.
func (c *chooser) ask(ctx context.Context) (*track.Found, error) {
	end := c.trace.Begin("network")
	err := c.ways.network(ctx)
	end(err)
	if err != nil {
		return nil, err
	}
	defer c.disk.stager(c.ways.source).Waiting("the registry's answer")()
	if err := c.ways.pickWay(ctx); err != nil {
		return nil, err
	}
	return c.answer(ctx)
}

// answer returns what the source has for this node.
func (c *chooser) answer(ctx context.Context) (*track.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, c.machine.limits.ask)
	defer cancel()
	end := c.trace.Begin("overlay")
	found, err := c.ways.sync(ctx)
	end(err)
	if err != nil {
		return nil, err
	}
	c.sync, c.detail = found.Axis()
	if c.sync != spec.SyncCurrent {
		c.say("%s: %s", c.sync, c.detail)
	}
	return found, nil
}

// fromMedium prepares what a medium carries, where the registry was not reached. It is judged as
// the registry's answer is: what is older than what this node has accepted is refused. What is
// wrong with a medium that is there is said.
func (c *chooser) fromMedium(ctx context.Context) (a asked) {
	defer func() {
		if a.err != nil && !errors.Is(a.err, loader.ErrNoMedium) && !errors.Is(a.err, errStartOver) {
			c.say("the medium: %v", a.err)
		}
	}()
	c.machine.coldplug() // of a medium that came late
	media, err := loader.MountMedia("/sys", "/dev", paths.RunMedium)
	if err != nil {
		return c.unasked(err)
	}
	defer func() {
		fault.Say(c.say, media.Close())
	}()
	for _, err := range media.Passed {
		c.say("the medium: %v", err)
	}
	c.disk.late() // as where an address has come: by now a known disk is there
	return c.carriedBest(ctx, media.Layouts)
}

// carriedBest prepares what the best of layouts has, by the rule that ways are compared by: the
// machine's own disk may carry what it was installed with, and a stick something newer. What
// has nothing for this node, as that of another fleet, is passed over, and what cannot be
// prepared leaves it to the next best, as far as that is not older than what was accepted.
func (c *chooser) carriedBest(ctx context.Context, layouts []string) asked {
	defer func(source, fleet oci.Source) { c.ways.source, c.ways.fleet = source, fleet }(c.ways.source, c.ways.fleet)
	c.ways.fleet = nil
	var all []answered
	var errs []error
	for place, layout := range layouts {
		from, err := pull.Open(oci.Ref{Layout: layout}, pull.Options{})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		by := answered{place: place, source: from}
		if len(layouts) > 1 {
			if by = c.ways.look(ctx, from, c.ways.lease, place); by.reason == nil {
				c.say("a medium has epoch %d, generation %d", by.found.Generation.Epoch, by.found.Generation.Generation)
			}
		}
		all = append(all, by)
	}
	slices.SortStableFunc(all, func(a, o answered) int { return o.compare(&a) })
	c.ways.fleet = join(all)
	for _, by := range all {
		if by.reason != nil {
			errs = append(errs, by.reason)
			continue
		}
		c.ways.source = by.source
		c.say("asking the medium, which carries a layer")
		a := c.newest(ctx, c.answer, true)
		if a.step.Act == decide.Enter || errors.Is(a.err, errStartOver) {
			return a
		}
		errs = append(errs, a.err)
	}
	return c.unasked(errors.Join(errs...))
}

// unasked returns the result for media of which none has anything to enter.
func (c *chooser) unasked(err error) asked {
	return asked{err: err, step: c.decided.Next(c.askedFacts(nil, err, true))}
}

// carries reports whether a medium carries a layer.
func carries() bool {
	media, err := loader.MountMedia("/sys", "/dev", paths.RunMedium)
	if err != nil {
		return false // what is wrong with it is said when it is asked
	}
	return media.Close() == nil
}

// fallBack prepares the best of what was good before, by the ways that package decide lists.
func (c *chooser) fallBack(ctx context.Context) (*track.Found, *prepared, error) {
	f := c.ways.follower()
	if s, err := c.disk.folder.Load(); err == nil && f.Identity.Node == "" {
		f.Identity.Node = s.DHCPName
	}
	good, err := f.Good(c.ways.heard)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for n, way := range decide.WaysBack(len(good), c.ways.source != nil) {
		if n == len(good) {
			errs = nil // those of the disk: what is fetched next may complete it
		}
		found := good[way.At]
		root, err := c.prepareOlder(ctx, found, way.Fetch)
		if err == nil || errors.Is(err, errStartOver) {
			for _, err := range errs { // the disk has lost it
				c.disk.trouble("the last good generation cannot run: %v", err)
			}
			return found, root, err
		}
		errs = append(errs, fmt.Errorf("generation %d: %w", found.Generation.Generation, err))
	}
	return nil, nil, errors.Join(errs...)
}

func (c *chooser) prepareOlder(ctx context.Context, found *track.Found, fetch bool) (*prepared, error) {
	if fetch {
		return c.prep.prepareInTime(ctx, c.ways.source, found)
	}
	whole := *found
	whole.Unchanged = c.ways.source == nil // else its kernel may still be fetched
	return c.prep.prepare(ctx, nil, &whole)
}

// backFacts returns the facts that decide how the loader goes on after it has looked for what ran
// well before. hindered is since when what failed may come of the arguments of a kexec.
func (c *chooser) backFacts(found bool, hindered time.Time) *decide.Facts {
	f := &decide.Facts{Event: decide.Sought, Back: decide.Back{Found: found}}
	if c.machine.afterKexec() && time.Since(hindered) > c.machine.limits.only {
		f.Back.Kexec = fmt.Sprintf("nothing was reached, nothing came, or memory was lacking, for %s under the arguments of "+
			"a kexec, which may be why",
			c.machine.limits.only)
	}
	if over := c.machine.trial; !over.IsZero() && !time.Now().Before(over) {
		f.Back.Overdue = fmt.Sprintf("this loader is on trial and has found nothing to boot within %s", c.machine.limits.trial)
	}
	return f
}

// reached reports whether somebody answered, for all that an error came of it: a layer that is
// too large or too slow is one that a registry has.
func reached(err error) bool {
	sync, _ := track.Describe(err)
	return sync != spec.SyncUnreachable || errors.Is(err, oci.ErrNotFound) || errors.Is(err, errSlow) || tooLittle(err)
}

// argumentsMay reports whether an error may come of the arguments of this kernel: they can cut a
// machine off, keep large packets from it, and take its memory. brought is what came before it.
func argumentsMay(err error, brought spec.Bytes) bool {
	return !reached(err) || tooLittle(err) || errors.Is(err, errSlow) && brought.Fetched == 0
}

// tooLittle reports whether the images do not fit into memory.
func tooLittle(err error) bool {
	var little *stage.TooLittle
	return errors.As(err, &little)
}
