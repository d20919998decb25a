// SPDX-License-Identifier: Apache-2.0

package track

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Keys returns the chain of keys that this node follows, nil where its bootstrap begins
// none: then the bootstrap's own keys count. It is read once: the version of the
// bootstrap, those that are kept from it on, and those kept from before it.
func (f *Tracker) Keys() *chain.Chain {
	if f.keys != nil || f.Bootstrap.Chain == nil {
		return f.keys
	}
	c, err := chain.Begin(f.Bootstrap.Chain)
	if err != nil {
		f.Say("the keys of site.cpio are not used: %v", err)
		return nil
	}
	for v := c.Version() - 1; v > 0; v-- {
		if earlier, err := f.savedKeys(v); err != nil || c.Precede(earlier) != nil {
			break // what was signed by an earlier version cannot be verified; nothing else is lost
		}
	}
	floor, err := f.keysFloor()
	fault.Say(f.Say, err)
	for v := c.Version() + 1; v <= floor; v++ {
		next, err := f.savedKeys(v)
		if err == nil {
			_, err = c.Add(next)
		}
		if err != nil {
			f.Say("version %d of the keys, which is kept here, is not used: %v", v, err)
			break // it is asked for again
		}
	}
	f.keys = c
	return c
}

// Known returns which versions this node knows, nil where its bootstrap begins no chain.
func (f *Tracker) Known() *spec.KeysKnown {
	c := f.Keys()
	if c == nil {
		return nil
	}
	first, err := chain.Begin(f.Bootstrap.Chain)
	if err != nil {
		return nil // Keys has said so
	}
	return &spec.KeysKnown{Version: c.Version(), BootFiles: first.Version()}
}

// Trusted returns the bootstrap with the keys that count now. They judge whatever is to act,
// from a place or kept. Those of earlier versions judge two things that are kept: a generation
// that proved itself here, see proved, and what a damaged state is rebuilt from, which only
// raises what is refused.
func (f *Tracker) Trusted() spec.Bootstrap {
	c := f.Keys()
	if c == nil {
		return f.Bootstrap
	}
	return c.Bootstrap(f.Bootstrap)
}

// walk asks for newer versions, and for those that lie between the boot files and what the disk
// has. That it fails is said and does not end anything: what is known goes on counting, and
// fleet:current says whether that is the newest.
func (f *Tracker) walk(ctx context.Context, keep func(chain.Link) error) {
	c := f.Keys()
	if c == nil {
		return
	}
	from := c.Version()
	c = c.Fork()
	if err := f.precede(ctx, c, keep); err != nil && err.Error() != f.apart {
		f.apart = err.Error() // another chain that was begun may never have them
		f.Say("what was signed by keys of before version %d is not verified: %v", c.Links()[0].Keys.Version, err)
	}
	err := c.Walk(ctx, f.fleetPlaces(), keep)
	fault.Say(f.Say, fault.In(err, "newer keys than version %d are not known", c.Version()))
	f.keys = c
	for _, l := range c.Links() {
		if l.Keys.Version <= from {
			continue
		}
		f.Say("the keys of version %d count: %s", l.Keys.Version, l.Keys.Reason)
		if l.LeftOut != nil {
			f.Say("fleet:keys: %s", spec.LeftOut(l.LeftOut))
		}
	}
}

// precede puts the versions before the oldest that is known, down to the first that the disk
// has: boot files may have come with a later one while this node was off. Each is named by the
// one after it, so it does not matter who has it. The oldest is kept, too, signed or not: the
// next boot files may come before a newer version does, and those of before must not come back.
func (f *Tracker) precede(ctx context.Context, c *chain.Chain, keep func(chain.Link) error) error {
	have, err := f.Folder.KeysVersions()
	if err != nil {
		return err
	}
	for range chain.MaxSteps {
		oldest := c.Links()[0]
		if !slices.Contains(have, oldest.Keys.Version) {
			if err := keep(oldest); err != nil {
				return err
			}
		}
		if len(have) == 0 || oldest.Keys.Version <= have[0] {
			return nil
		}
		earlier, err := f.savedKeys(oldest.Keys.Version - 1)
		if err != nil || c.Precede(earlier) != nil {
			_, err = trust.Keys(ctx, f.fleetPlaces(), oldest.Keys.Version-1,
				func(earlier trust.Candidate) (any, error) { return nil, c.Precede(earlier) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep writes a version before it counts.
func (f *Tracker) keep(l chain.Link) error {
	return f.Folder.SaveKeys(l.Keys.Version, l.Candidate.SaveKeys())
}

// behind refuses where versions are missing that this node has seen, or that a fleet:current
// has named that it accepted.
func (f *Tracker) behind(s *state.State) error {
	c := f.Keys()
	if c == nil {
		return nil
	}
	floor, err := f.keysFloor()
	fault.Say(f.Say, err) // what is known goes on counting
	return c.Behind(max(floor, s.Fleet.Keys))
}

// keysFloor is the newest version that this node has accepted, whatever became of it.
func (f *Tracker) keysFloor() (uint64, error) {
	have, err := f.Folder.KeysVersions()
	if err != nil || len(have) == 0 {
		return 0, err
	}
	return have[len(have)-1], nil
}

func (f *Tracker) savedKeys(version uint64) (trust.Candidate, error) {
	data, err := f.Folder.LoadKeys(version)
	if err != nil {
		return trust.Candidate{}, err
	}
	return trust.LoadKeys(data)
}

// versions are the bootstrap with the keys of each known version, newest first.
func (f *Tracker) versions() []spec.Bootstrap {
	c := f.Keys()
	if c == nil {
		return []spec.Bootstrap{f.Bootstrap}
	}
	all := plain.Each(c.Links(), func(l chain.Link) spec.Bootstrap { return chain.With(f.Bootstrap, l.Keys) })
	slices.Reverse(all)
	return all
}

// proved judges a kept generation. One that proved itself here before its key was revoked
// stays what the node can boot, by the keys that counted then; that its content must not
// run is left to the reject list. One that was only accepted is judged by the keys of
// now.
func (f *Tracker) proved(s *state.State, g *state.Generation,
	judge func(spec.Bootstrap) (*trust.Accepted, error)) (*trust.Accepted, error) {
	all := f.versions()
	if s.Staged != nil && s.Staged.Same(*g) && !slices.ContainsFunc(s.Kept(), g.Same) {
		all = all[:1]
	}
	return byAny(all, judge)
}

// byAny judges by each version in turn, as long as it is the keys that are not right. The
// first error is the one of the keys that count.
func byAny[T any](versions []spec.Bootstrap, judge func(spec.Bootstrap) (T, error)) (T, error) {
	v, err := judge(versions[0])
	for _, b := range versions[1:] {
		if !refusal.OfKeys(err) {
			break
		}
		earlier, last := judge(b)
		if !refusal.OfKeys(last) {
			return earlier, last
		}
	}
	return v, err
}

// RescueKeys are the keys that may let an operator into this node: none without a chain. Where
// versions are missing, which may revoke those of the newest one, none counts either, and
// the error says so.
func (f *Tracker) RescueKeys() (spec.Role, error) {
	c := f.Keys()
	if c == nil {
		return spec.Role{}, nil
	}
	s, err := f.Folder.Load()
	if err == nil {
		_, err = f.keysFloor()
	}
	if err == nil {
		err = f.behind(s)
	}
	if err != nil {
		return spec.Role{}, fmt.Errorf("no rescue key counts: %w", err)
	}
	return c.Newest().Keys.Roles.Rescue, nil
}
