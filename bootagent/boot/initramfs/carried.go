// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/boot/medium"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

// carried prepares what a medium carries, where the registry was not reached. It is judged as
// the registry's answer is: what is older than what this node has accepted is refused.
func (b *boot) carried(ctx context.Context) asked {
	layout, err := medium.Mount("/sys", "/dev", paths.RunMedium)
	if err != nil {
		return b.unasked(err)
	}
	defer func() {
		if err := medium.Unmount(paths.RunMedium); err != nil {
			b.say("unmount the medium: %v", err)
		}
	}()
	from, err := pull.Open(oci.Ref{Layout: layout}, pull.Options{})
	if err != nil {
		return b.unasked(err)
	}
	defer func(before oci.Source) { b.source = before }(b.source)
	b.source = from
	b.say("asking the medium, which carries a layer")
	return b.newest(ctx, b.answer, true)
}

// unasked is what came of a medium that could not be asked.
func (b *boot) unasked(err error) asked {
	return asked{err: err, step: decide.Next(b.askedFacts(nil, err, true))}
}

// carries reports whether a medium carries a layer.
func carries() bool {
	if _, err := medium.Mount("/sys", "/dev", paths.RunMedium); err != nil {
		return false // what is wrong with it is said when it is asked
	}
	return medium.Unmount(paths.RunMedium) == nil
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
