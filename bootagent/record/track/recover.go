// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

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
			if err := f.save(s, looked{}); err != nil {
				f.Say("the second copy of the state stays behind: %v", err)
			}
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
	if err != nil {
		f.Say("%v", err)
	}
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
	if err != nil {
		f.Say("%v", err)
	}
	var kept []*trust.Accepted
	for _, digest := range digests {
		c, err := f.saved(&state.Generation{Overlay: digest})
		if err == nil {
			var a *trust.Accepted
			// It is here since this node has accepted it, by whichever version counted then.
			a, err = byAny(f.versions(), func(b spec.Bootstrap) (*trust.Accepted, error) {
				return f.accept()(c, b, f.claim(s, c), spec.Floor{}, f.clock(s), trust.Known{})
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
