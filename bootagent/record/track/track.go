// SPDX-License-Identifier: Apache-2.0

// Package track keeps a node at the fleet's newest generation: ask, decide,
// remember, in that order. The loader, the service and the one-shot verbs all
// go through it, so the floor is on disk before anything acts, whichever of them asks.
//
// Package trust decides what may act, package state keeps what is remembered;
// this package joins the two. It stacks and applies nothing.
package track

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Tracker asks for one node.
type Tracker struct {
	Source    oci.Source
	Fleet     oci.Source // asked for keys and fleet:current; nil is Source
	Bootstrap spec.Bootstrap
	Identity  trust.Identity
	Folder    *state.Folder
	Build     time.Time        // of the agent
	CoreOnly  bool             // in a loader: sections are the concern of the root's agent
	Anew      bool             // what is kept spares no request
	RTC       func() time.Time // the hardware clock; nil is time.Now
	Rules     *trust.Rules     // nil is all of them; a test leaves one out
	Epochs    Epochs           // what the machine remembers beside the disk; nil: nothing
	Say       func(format string, args ...any)

	keys  *chain.Chain // nil until it is read, see Keys
	apart string       // why versions of before cannot be had, as it was said
}

// ErrNothing is returned where the node has never accepted anything.
var ErrNothing = errors.New("nothing has been accepted yet")

// errNotKept is for what was accepted and must not act: its floor is not on disk.
var errNotKept = errors.New("what was accepted could not be kept")

// fleetPlaces is where what holds for the whole fleet is asked for.
func (f *Tracker) fleetPlaces() oci.Source { return cmp.Or(f.Fleet, f.Source) }

// Sync asks the registry. Where nothing changed that costs two conditional requests.
func (f *Tracker) Sync(ctx context.Context) (*Found, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	before := s.Clone()
	f.walk(ctx, f.keep)
	l, err := f.look(ctx, s)
	if err != nil || l.found.Held {
		// What fleet:current says holds even when the overlay is refused: else it
		// would be enough to keep it away the next time.
		if !reflect.DeepEqual(s, before) {
			err = errors.Join(err, f.save(s, l))
		}
		return l.found, err
	}
	// The overlay first, so that the state never names what is not there.
	if err := f.Folder.SaveOverlay(l.accepted.Digest, l.overlay.Save()); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotKept, err)
	}
	s.Accept(l.found.Generation)
	f.rememberProof(s, l.accepted.Overlay.Match.MACs)
	f.rememberDate(s, l.accepted.IssuedAt)
	if s.Staged != nil {
		l.found.Generation = *s.Staged
	}
	if err := f.save(s, l); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotKept, err)
	}
	if s.Floor != before.Floor {
		f.seenEpoch(s.Floor.Epoch)
	}
	return l.found, nil
}

func (f *Tracker) save(s *state.State, l looked) error {
	if l.fleet != nil {
		if err := f.Folder.SaveFleet(l.fleet.SaveFleet()); err != nil {
			return err
		}
	}
	s.OfFleet = f.Bootstrap.Fleet
	return f.Folder.Save(s)
}

// Look is Sync that remembers nothing: what it finds must not act.
func (f *Tracker) Look(ctx context.Context) (*Found, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	known := f.keys
	defer func() { f.keys = known }()
	f.walk(ctx, func(chain.Link) error { return nil })
	l, err := f.look(ctx, s)
	return l.found, err
}

// looked holds the registry's answer: the overlay, and the statement of fleet:current.
type looked struct {
	found    *Found
	accepted *trust.Accepted
	overlay  trust.Candidate
	fleet    *trust.Candidate // nil where it could not be had
}

func (f *Tracker) look(ctx context.Context, s *state.State) (l looked, err error) {
	kept := f.sparing(func() (trust.Candidate, error) {
		have := newest(s)
		if have == nil {
			return trust.Candidate{}, ErrNothing
		}
		return f.saved(have)
	})
	// Each place is heard to the end: one whose overlay is refused does not hide the next.
	fresh := sync.OnceValue(func() (fresh *trust.FleetState) {
		fresh, l.fleet = f.fleet(ctx, s)
		return fresh
	})
	l.accepted, err = oci.Accepted(ctx, f.Source, oci.InOrder, func(ctx context.Context, place oci.Source) (trust.Candidate, error) {
		return trust.Overlay(ctx, place, f.Identity.Tags(), kept.ETag)
	}, func(c trust.Candidate) (*trust.Accepted, error) {
		if l.overlay = c; c.NotModified {
			l.overlay = kept
		}
		said := fresh() // and s has what it names
		if err := f.behind(s); err != nil {
			return nil, err
		}
		return f.accept()(l.overlay, f.Trusted(), f.Identity, f.clock(s),
			trust.Known{Floor: s.Floor, Overlay: s.AtFloor, Reject: s.Rejected, Fleet: said})
	})
	if err != nil {
		return l, err
	}
	a := l.accepted
	l.found = &Found{
		Overlay: a.Overlay, LeftOut: a.LeftOut, RunsOn: a.RunsOn, Expires: a.Expires, Expired: a.Expired,
		Unconfirmed: fresh().Unconfirmed(),
		Generation:  state.Generation{Overlay: a.Digest, Layer: a.Overlay.Layer, Epoch: a.Floor.Epoch, Generation: a.Floor.Generation},
	}
	if s.Current != nil && s.Current.Same(l.found.Generation) {
		l.found.Unchanged = true
	} else if l.found.Why = f.Held(s, l.found.Generation); l.found.Why != "" {
		l.found.Held = true
	}
	return l, nil
}

// Good returns what the node may fall back on, best first, each verified again: the
// overlay that it last ran well, the one before, and at last the one that it
// accepted and has not proven yet. What the fleet has rejected is none of them. Where a newer
// one failed, what a boot has proved comes first.
func (f *Tracker) Good(failed bool) ([]*Found, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	var good []*Found
	var errs []error
	list := s.Generations()
	if failed {
		list = s.Fallbacks()
	}
	for _, g := range list {
		found, err := f.recall(s, g, slices.Concat(s.Rejected, s.Fleet.Reject))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		good = append(good, found)
	}
	if len(good) > 0 {
		for _, err := range errs {
			f.Say("%v", err)
		}
		return good, nil
	}
	if errs == nil {
		return nil, ErrNothing
	}
	return nil, errors.Join(errs...)
}

// Recall verifies again an overlay that the node runs. That it was rejected since
// does not end it; the next boot will.
func (f *Tracker) Recall(g *state.Generation) (*Found, error) {
	s, err := f.Folder.Load()
	if err != nil {
		return nil, err
	}
	return f.recall(s, g, s.Rejected)
}

func (f *Tracker) recall(s *state.State, g *state.Generation, reject []string) (*Found, error) {
	c, err := f.saved(g)
	if err != nil {
		return nil, err
	}
	// Its own floor, not the node's: a newer generation that could not be run has
	// raised that one, and going back to what this node itself proved is not a replay.
	known := trust.Known{Floor: g.Floor(), Overlay: g.Overlay, On: g.Layer, Reject: reject}
	// What the machine once proved counts for what it has already, never for what the
	// registry offers.
	id := f.Identity
	id.MACs = slices.Concat(id.MACs, s.Proof.Of(id.UUIDs))
	a, err := f.proved(s, g, func(b spec.Bootstrap) (*trust.Accepted, error) {
		return f.accept()(c, b, id, f.clock(s), known)
	})
	if err != nil {
		return nil, fmt.Errorf("kept overlay of generation %d: %w", g.Generation, err)
	}
	return &Found{Overlay: a.Overlay, LeftOut: a.LeftOut, RunsOn: a.RunsOn, Expires: a.Expires,
		Generation: *g, Unchanged: true, Expired: a.Expired}, nil
}

func (f *Tracker) saved(g *state.Generation) (trust.Candidate, error) {
	data, err := f.Folder.LoadOverlay(g.Overlay)
	if err != nil {
		return trust.Candidate{}, err
	}
	return trust.Load(data)
}

// sparing returns what need not be sent when it is not modified, an empty candidate where
// there is nothing: then the registry sends all of it.
func (f *Tracker) sparing(load func() (trust.Candidate, error)) trust.Candidate {
	if f.Anew {
		return trust.Candidate{}
	}
	c, err := load()
	if err != nil {
		return trust.Candidate{} // it is sent again
	}
	return c
}

// accept is the decision for this kind of program.
func (f *Tracker) accept() func(trust.Candidate, spec.Bootstrap, trust.Identity, trust.Clock, trust.Known) (*trust.Accepted, error) {
	if f.CoreOnly {
		return f.rules().AcceptCore
	}
	return f.rules().Accept
}

func newest(s *state.State) *state.Generation {
	if s.Staged != nil {
		return s.Staged
	}
	return s.Current
}

// Found is an overlay that may act; its floor is on disk.
type Found struct {
	Overlay     spec.Overlay
	Generation  state.Generation
	RunsOn      []string // other layers on which what is live of it may be applied
	LeftOut     []string // paths of keys of a later release, which do not act
	Expires     time.Time
	Unchanged   bool   // what the node has already
	Held        bool   // newer than what the node has, but it does not take it; not remembered
	Why         string // why it is held
	Expired     bool   // its signature; it runs all the same
	Unconfirmed string // why nothing confirms that it is the newest, "" when something does
}

// Axis returns the sync axis of a node that asked and found this.
func (f *Found) Axis() (sync spec.Sync, detail string) {
	switch {
	case f.Held:
		return spec.SyncBehind, fmt.Sprintf("generation %d is there, but %s", f.Generation.Generation, f.Why)
	case f.Expired:
		return spec.SyncExpired, fmt.Sprintf("the overlay expired at %s", f.Expires.UTC().Format(time.RFC3339))
	case f.Unconfirmed != "":
		return spec.SyncUnconfirmed, f.Unconfirmed
	}
	return spec.SyncCurrent, ""
}

// Describe returns the sync axis for an error of Sync.
func Describe(err error) (sync spec.Sync, detail string) {
	switch {
	case err == nil:
		return spec.SyncCurrent, ""
	case refusal.Of(err) != "":
		return spec.SyncRefused(string(refusal.Of(err))), err.Error()
	case errors.Is(err, errNotKept), OfDisk(err):
		return spec.SyncBehind, err.Error()
	}
	return spec.SyncUnreachable, err.Error()
}

// OfDisk reports whether an error is a disk's: no connection ends with one of these.
func OfDisk(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC)
}
