// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// fleet reads fleet:current and remembers what it says. Where it cannot be had,
// or is older than one that this node has seen, what is remembered counts.
func (f *Tracker) fleet(ctx context.Context, s *state.State) (*trust.FleetState, *trust.Candidate) {
	fresh, c, err := f.current(ctx, s)
	if err == nil {
		f.rememberFleet(s, fresh)
		return fresh, c
	}
	if !oci.Missing(err) {
		f.Say("fleet:current is not used: %v", err)
	}
	if s.Fleet.Empty() {
		return nil, nil
	}
	clock := f.clock(s)
	now, _ := clock.Now(time.Time{})
	issued, expires := time.Unix(s.Fleet.Issued, 0), time.Unix(s.Fleet.Expires, 0)
	return &trust.FleetState{
		Minimum: s.Fleet.Minimum, Reject: s.Fleet.Reject, IssuedAt: issued, Expires: expires,
		Expired: now.After(expires), Credible: clock.Credible(issued), Keys: s.Fleet.Keys,
	}, nil
}

// Loaders returns what the newest fleet:current that this node has accepted names, verified
// again; nil where it has none.
func (f *Tracker) Loaders() ([]spec.Loader, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	data, err := f.Folder.LoadFleet()
	if err != nil {
		return nil, fault.But(err, fs.ErrNotExist)
	}
	c, err := trust.LoadFleet(data)
	if err != nil {
		return nil, err
	}
	kept, err := f.judge(s, c, f.Trusted())
	if err != nil {
		return nil, fmt.Errorf("kept fleet:current: %w", err)
	}
	return kept.Loaders, nil
}

// current returns the newest fleet:current that is accepted of all places.
func (f *Tracker) current(ctx context.Context, s *state.State) (*trust.FleetState, *trust.Candidate, error) {
	kept := f.sparing(func() (trust.Candidate, error) {
		data, err := f.Folder.LoadFleet()
		if err != nil {
			return trust.Candidate{}, err
		}
		return trust.LoadFleet(data)
	})
	all, err := oci.Everywhere(ctx, f.fleetPlaces(), func(ctx context.Context, place oci.Source) (trust.Candidate, error) {
		return trust.Current(ctx, place, kept.ETag)
	}, func(c trust.Candidate) (said, error) {
		if c.NotModified {
			c = kept
		}
		fresh, err := f.judge(s, c, f.Trusted())
		if err == nil && fresh.Minimum.Epoch == s.Fleet.Minimum.Epoch && fresh.IssuedAt.Unix() < f.seen(s) {
			err = refusal.New(refusal.Rollback, "it was issued at %s, this node knows a newer one", fresh.IssuedAt)
		}
		return said{fresh, c}, err
	})
	if err != nil {
		return nil, nil, err
	}
	newest := slices.MaxFunc(all, func(a, b said) int { return a.Compare(b.FleetState) })
	return newest.FleetState, &newest.by, nil
}

// said is a fleet:current of one place that was accepted.
type said struct {
	*trust.FleetState
	by trust.Candidate
}

// judge decides about a fleet:current by the keys of b.
func (f *Tracker) judge(s *state.State, c trust.Candidate, b spec.Bootstrap) (*trust.FleetState, error) {
	return f.rules().AcceptFleet(c, b, s.Fleet.Minimum, max(s.Floor.Epoch, s.Fleet.Minimum.Epoch), f.clock(s))
}

// seen is when the newest fleet:current was issued, 0 where the date that is kept
// is not credible: this clock, or that of then, is wrong.
func (f *Tracker) seen(s *state.State) int64 {
	if !f.clock(s).Credible(time.Unix(s.Fleet.Issued, 0)) {
		return 0
	}
	return s.Fleet.Issued
}

func (f *Tracker) rememberFleet(s *state.State, fresh *trust.FleetState) {
	if fresh.LeftOut != nil && !slices.Equal(fresh.LeftOut, s.Fleet.LeftOut) {
		f.Say("fleet:current: %s", spec.LeftOut(fresh.LeftOut))
	}
	issued := fresh.IssuedAt.Unix()
	if !fresh.Credible {
		issued = f.seen(s)
	}
	before := s.Fleet
	s.Fleet = state.Fleet{Minimum: fresh.Minimum, Issued: issued, Expires: fresh.Expires.Unix(), Reject: fresh.Reject,
		LeftOut: fresh.LeftOut, Keys: fresh.Keys}
	if c := f.Keys(); c != nil {
		s.Fleet.KeysBy = c.Version()
	}
	if s.Fleet.KeysBy == before.KeysBy { // else the keys that signed before may be revoked
		s.Fleet.Keys = max(s.Fleet.Keys, before.Keys)
	}
	f.rememberDate(s, fresh.IssuedAt)
}

// rememberDate keeps the date of the newest statement. One that is not credible
// is not kept, and does not stay.
func (f *Tracker) rememberDate(s *state.State, issuedAt time.Time) {
	clock := f.clock(s)
	if clock.Credible(issuedAt) && (issuedAt.After(clock.Newest) || !clock.Credible(clock.Newest)) {
		s.Newest = issuedAt.Unix()
	}
}

// rememberProof keeps by which of its addresses this machine is bound to an overlay
// that was accepted just now. A machine without a UUID could not show later that it is
// the same one.
func (f *Tracker) rememberProof(s *state.State, bound []string) {
	p := state.Proof{MACs: slices.DeleteFunc(slices.Clone(bound), func(mac string) bool { return !slices.Contains(f.Identity.MACs, mac) })}
	if len(f.Identity.UUIDs) == 0 || len(p.MACs) == 0 {
		return
	}
	p.UUID = f.Identity.UUIDs[0]
	s.Proof = p
}

// rules are those of package trust.
func (f *Tracker) rules() *trust.Rules {
	if f.Rules == nil {
		return trust.All()
	}
	return f.Rules
}

func (f *Tracker) clock(s *state.State) trust.Clock {
	c := Clock(s, f.Build)
	if f.RTC != nil {
		c.RTC = f.RTC()
	}
	return f.rules().On(c)
}

// Clock returns a node's sources of the time: its hardware clock, when its agent was
// built, and the newest statement that it remembers.
func Clock(s *state.State, build time.Time) trust.Clock {
	c := trust.Clock{RTC: time.Now(), Build: build}
	if s.Newest > 0 {
		c.Newest = time.Unix(s.Newest, 0)
	}
	return c
}

// Held says why a node does not take a generation that it may, "" where it does. One
// that has nothing else takes what there is. What the fleet lets nobody run, nobody on the
// node can keep.
func (f *Tracker) Held(s *state.State, g state.Generation) string {
	why, not := f.held(s, g)
	if not != nil {
		f.Say("generation %d is not kept: %v", s.Current.Generation, not)
	}
	return why
}

// held is Held that says nothing: not is why a hold does not count.
func (f *Tracker) held(s *state.State, g state.Generation) (why string, not error) {
	if s.Current == nil {
		return "", nil
	}
	now, _ := f.clock(s).Now(time.Time{})
	h := s.HoldAt(now.Unix())
	switch {
	case s.Trial.Of(g) && s.Trial.Pending() && !s.Trial.Begins():
		return "it is not confirmed yet", nil
	case s.Trial.Of(g) && !s.Trial.Pending():
		return "it was undone: " + s.Trial.Reason + "; 'caisson-agent sync --retry' tries it again", nil
	case h == nil:
		return "", nil
	}
	if err := permitted(s, *s.Current); err != nil {
		return "", err
	}
	return state.SayHold(h), nil
}

// Candidate returns the generation that waits and that the node may take, nil where there is none:
// what a loader that asks the registry would begin. It is asked at each look, and says nothing.
func (f *Tracker) Candidate(s *state.State) *state.Generation {
	g := s.Staged
	if g == nil || permitted(s, *g) != nil {
		return nil
	}
	if why, _ := f.held(s, *g); why != "" { // a hold that does not count is said where it is met
		return nil
	}
	return g
}

// permitted returns why the fleet lets nobody run a generation any more. The least
// generation says nothing about that: each publish raises it, against replays of what this
// node proved itself long ago.
func permitted(s *state.State, g state.Generation) error {
	for _, digest := range []string{g.Overlay, g.Layer} {
		if slices.Contains(s.Fleet.Reject, digest) || slices.Contains(s.Rejected, digest) {
			return refusal.New(refusal.Rejected, "%s is on the reject list", digest)
		}
	}
	if least := s.Fleet.Minimum.Epoch; g.Epoch < least {
		return refusal.New(refusal.Epoch, "the fleet accepts nothing of an epoch before %d", least)
	}
	return nil
}

// Return is [Tracker.Recall] for a generation that an operator wants to go back to.
func (f *Tracker) Return(g *state.Generation) (*Found, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	if err := permitted(s, *g); err != nil {
		return nil, fmt.Errorf("generation %d: %w", g.Generation, err)
	}
	return f.recall(s, g, s.Rejected)
}

// Recover makes the state usable before anything else reads it. The memory of
// another fleet is set aside: its floor says nothing here. A state that cannot be
// read is rebuilt from what is kept beside it with signatures; a floor that is
// forgotten would let old overlays in. What was lost is said, and stays in the
// state until a newer generation is accepted.
func (f *Tracker) Recover() error {
	damage := f.Folder.Damage()
	s, err := f.Folder.Load()
	if errors.Is(err, state.ErrDamaged) {
		s, err = &state.State{Tracking: spec.Following}, nil
		s.Lost = []string{"tracking, what was rejected here, the counts of attempts, the name from DHCP"}
	}
	if err != nil {
		return err
	}
	if other := s.OfFleet; other != "" && other != f.Bootstrap.Fleet {
		where, err := f.Folder.SetAside()
		if err != nil {
			return err
		}
		f.Say("the state is of fleet %q, this node is in %q: moved to %s", other, f.Bootstrap.Fleet, where)
		s = &state.State{Tracking: spec.Following}
		f.isOld(s)
		return f.save(s, looked{})
	}
	if damage == nil {
		if f.isOld(s) {
			return f.save(s, looked{})
		}
		if f.Folder.IsUneven() { // the power went between two writes, and the next damage must not meet an old copy
			fault.Say(f.Say, fault.In(f.save(s, looked{}), "the second copy of the state stays behind"))
		}
		return nil
	}
	f.Say("the state is damaged: %v", damage)
	s.Lost = append([]string{damage.Error()}, s.Lost...)
	f.rebuild(s)
	f.isOld(s)
	f.Say("the state is rebuilt: epoch %d, generation %d is the floor", s.Floor.Epoch, s.Floor.Generation)
	return f.save(s, looked{})
}

// Epochs is where a machine remembers its fleet's epoch, whichever disk it has.
type Epochs interface {
	// Epoch notes that an epoch of a fleet was accepted, 0 for none, and returns the highest one
	// that was ever noted.
	Epoch(fleet string, accepted uint64) (highest uint64, err error)
}

// isOld has a disk that does not know of the epoch which this machine has seen begin at that: it is an
// old copy, or another machine's. What it has of earlier epochs is not booted any more. Without an answer
// the disk counts alone.
func (f *Tracker) isOld(s *state.State) bool {
	seen := f.seenEpoch(0)
	if seen <= s.Floor.Epoch {
		return false
	}
	why := fmt.Sprintf("the TPM of this machine has seen epoch %d, and the state disk knows of %d: it is an old copy or another one, "+
		"so nothing of it is booted, and the node waits for an overlay of epoch %d from its registry", seen, s.Floor.Epoch, seen)
	f.Say("%s", why)
	s.BeginAt(seen)
	s.Lost = append(s.Lost, why)
	return true
}

// seenEpoch has the machine note an epoch, and returns the highest one that it has seen.
func (f *Tracker) seenEpoch(accepted uint64) uint64 {
	if f.Epochs == nil {
		return 0
	}
	seen, err := f.Epochs.Epoch(f.Bootstrap.Fleet, accepted)
	fault.Say(f.Say, err)
	return seen
}

// rebuild raises s to what the kept, signed documents say.
func (f *Tracker) rebuild(s *state.State) {
	if data, err := f.Folder.LoadFleet(); err == nil {
		if c, err := trust.LoadFleet(data); err == nil {
			fresh, err := byAny(f.versions(), func(b spec.Bootstrap) (*trust.FleetState, error) { return f.judge(s, c, b) })
			if err == nil {
				f.rememberFleet(s, fresh)
			}
		}
	}
	var kept []*state.Generation
	for _, a := range f.kept(s) {
		f.rememberDate(s, a.IssuedAt)
		kept = append(kept, &state.Generation{Overlay: a.Digest, Layer: a.Overlay.Layer, Epoch: a.Floor.Epoch, Generation: a.Floor.Generation})
	}
	if len(kept) == 0 {
		return
	}
	best := kept[0]
	if s.Floor.Compare(best.Floor()) < 0 {
		s.Floor, s.AtFloor = best.Floor(), best.Overlay
	}
	if s.Current != nil {
		return // a copy could be read: it knows which one was good
	}
	// Which of two was proven is lost: the older one is good, the newer one is tried.
	if s.Current = kept[0]; len(kept) > 1 {
		s.Current, s.Staged = kept[1], kept[0]
	}
	if len(kept) > 2 {
		s.Previous = kept[2]
	}
}

// Kept returns the overlays in the state directory whose signatures are verified,
// newest first, whether they may still act or not: for what they can take back.
func (f *Tracker) Kept() ([]*trust.Accepted, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	return f.kept(s), nil
}

func (f *Tracker) kept(s *state.State) []*trust.Accepted {
	digests, err := f.Folder.Overlays()
	fault.Say(f.Say, err)
	var kept []*trust.Accepted
	for _, digest := range digests {
		c, err := f.saved(&state.Generation{Overlay: digest})
		if err == nil {
			var a *trust.Accepted
			// It is here since this node has accepted it, by whichever version counted then.
			a, err = byAny(f.versions(), func(b spec.Bootstrap) (*trust.Accepted, error) {
				return f.accept()(c, b, f.claim(s, c), f.clock(s), trust.Known{})
			})
			if err == nil && a.Digest == digest {
				kept = append(kept, a)
				continue
			}
		}
		f.Say("the kept overlay %s is not used: %v", digest, err)
	}
	slices.SortFunc(kept, func(a, b *trust.Accepted) int { return b.Floor.Compare(a.Floor) })
	return kept
}

// claim is the node's identity; where a name alone binds an overlay, and the name
// that DHCP gave is lost with the state, it is taken from the overlay that this
// node has accepted under it.
func (f *Tracker) claim(s *state.State, c trust.Candidate) trust.Identity {
	id := f.Identity
	id.MACs = slices.Concat(id.MACs, s.Proof.Of(id.UUIDs))
	if core := coreOf(c); id.Node == "" && len(core.Match.MACs) == 0 && len(core.Match.UUIDs) == 0 {
		id.Node = core.Node
		s.DHCPName = cmp.Or(s.DHCPName, core.Node)
	}
	return id
}

// coreOf reads the frozen core of a kept overlay. It is not verified.
func coreOf(c trust.Candidate) spec.Core {
	var core spec.Core
	if _, err := spec.DecodeKnown(c.Document, &core); err != nil {
		return spec.Core{}
	}
	return core
}
