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
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
)

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
		if err := media.Close(); err != nil {
			c.say("%v", err)
		}
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
