// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/bootagent/boot/medium"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

// carried prepares what a medium carries, where the registry was not reached. It is judged as
// the registry's answer is: what is older than what this node has accepted is refused.
func (b *boot) carried(ctx context.Context) asked {
	b.coldplug() // of a medium that came late
	media, err := medium.Mount("/sys", "/dev", paths.RunMedium)
	if err != nil {
		return b.unasked(err)
	}
	defer func() {
		if err := media.Close(); err != nil {
			b.say("%v", err)
		}
	}()
	for _, err := range media.Passed {
		b.say("the medium: %v", err)
	}
	b.lateState() // as where an address has come: by now a known disk is there
	return b.carriedBest(ctx, media.Layouts)
}

// carriedBest prepares what the best of layouts has, by the rule that ways are compared by: the
// machine's own disk may carry what it was installed with, and a stick something newer. What
// has nothing for this node, as that of another fleet, is passed over, and what cannot be
// prepared leaves it to the next best, as far as that is not older than what was accepted.
func (b *boot) carriedBest(ctx context.Context, layouts []string) asked {
	defer func(before oci.Source) { b.source = before }(b.source)
	var all []carriedBy
	var errs []error
	for place, layout := range layouts {
		from, err := pull.Open(oci.Ref{Layout: layout}, pull.Options{})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c := carriedBy{answered{place: place}, from}
		if len(layouts) > 1 {
			c.answered = b.lookAt(ctx, from, place)
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, o carriedBy) int { return o.compare(&a.answered) })
	for _, c := range all {
		if c.reason != nil {
			errs = append(errs, c.reason)
			continue
		}
		b.source = c.source
		b.say("asking the medium, which carries a layer")
		a := b.newest(ctx, b.answer, true)
		if a.step.Act == decide.Enter || errors.Is(a.err, errStartOver) {
			return a
		}
		errs = append(errs, a.err)
	}
	return b.unasked(errors.Join(errs...))
}

// unasked returns the result for media of which none has anything to enter.
func (b *boot) unasked(err error) asked {
	return asked{err: err, step: b.decided.Next(b.askedFacts(nil, err, true))}
}

// carriedBy holds the offer of a medium for this node.
type carriedBy struct {
	answered
	source oci.Source
}

// lookAt says what a medium has, and remembers nothing of it.
func (b *boot) lookAt(ctx context.Context, from oci.Source, place int) answered {
	f := b.follower()
	f.Source = from
	a := answered{place: place}
	var name string
	a.found, name, a.reason = b.claim(ctx, f, b.lease, f.Look)
	a.weak = name != ""
	if a.reason == nil {
		b.say("a medium has epoch %d, generation %d", a.found.Generation.Epoch, a.found.Generation.Generation)
	}
	return a
}

// carries reports whether a medium carries a layer.
func carries() bool {
	media, err := medium.Mount("/sys", "/dev", paths.RunMedium)
	if err != nil {
		return false // what is wrong with it is said when it is asked
	}
	return media.Close() == nil
}

// fromMedium is carried, for the loop that chooses: it says what is wrong with a medium that
// is there, and only errStartOver ends the loop.
func (b *boot) fromMedium(ctx context.Context) asked {
	a := b.carried(ctx)
	if a.err != nil && !errors.Is(a.err, medium.ErrNone) && !errors.Is(a.err, errStartOver) {
		b.say("the medium: %v", a.err)
	}
	return a
}
