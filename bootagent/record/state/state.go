// SPDX-License-Identifier: Apache-2.0

// Package state is the node's memory: one directory, on the state disk or, on a
// diskless node, in memory. It holds state.json in two copies, the accepted
// overlays with their signatures, the newest fleet:current, and identity that
// outlives a root (machine-id, host keys).
//
// Every change is one durable rename: a cut leaves the old state or the new.
// The package records decisions and takes none: package trust decides what may
// be accepted, package track rebuilds a state that cannot be read. Stages of the
// agent import it.
package state

import (
	"cmp"
	"slices"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// State is state.json.
type State struct {
	OfFleet       string        `json:"ofFleet,omitempty"` // the fleet that all of this is about
	Tracking      spec.Tracking `json:"tracking"`
	TrackingSince int64         `json:"trackingSince,omitempty"` // seconds since 1970
	// the name by which DHCP led to the overlay; without DHCP it is this node's only claim to it
	DHCPName    string      `json:"told,omitempty"`
	Current     *Generation `json:"current,omitempty"`  // the last good one
	Previous    *Generation `json:"previous,omitempty"` // good before that
	Staged      *Generation `json:"staged,omitempty"`   // accepted, not yet proven by a boot or an apply
	Ahead       *Generation `json:"ahead,omitempty"`    // good on the layer of Current, which is not its own: that waits; see Best
	Floor       spec.Floor  `json:"floor"`
	AtFloor     string      `json:"atFloor,omitempty"`     // digest of the overlay that was accepted at the floor
	Fleet       Fleet       `json:"fleet,omitzero"`        // what the newest fleet:current said
	Newest      int64       `json:"newest,omitempty"`      // newest accepted issuedAt, seconds since 1970
	Rejected    []string    `json:"rejected,omitempty"`    // digests of layers or overlays never to run again
	MetricsFile string      `json:"metricsFile,omitempty"` // where metrics are written, to be removed when they no longer are
	Lost        []string    `json:"lost,omitempty"`        // what was damaged and how it was rebuilt, until a newer generation is accepted
	Proof       Proof       `json:"proof,omitzero"`        // what this machine was bound by when it last accepted an overlay

	Earlier []Generation `json:"earlier,omitempty"` // good before the current one, newest first
	Hold    *spec.Hold   `json:"hold,omitempty"`    // why an operator on this node has it keep what it has; see HoldAt
	Paused  *spec.Hold   `json:"paused,omitempty"`  // why an operator on this node has it change nothing; see PauseAt
	Trial   *Trial       `json:"trial,omitempty"`   // what is in effect until it is confirmed, or was undone since it was not

	// Doubted names the generation rejected or undone since the registry was not reached with it,
	// as it was before, until what ran before has tried the same; see Absolve.
	Doubted *Generation `json:"doubted,omitempty"`

	Early *EarlyRuns `json:"early,omitempty"` // that no agent has followed
}

// Proof describes a machine as it was when an overlay was accepted for it. A network card may
// be gone or replaced since; the machine with the same UUID and the same state disk
// is still the one that had it.
type Proof struct {
	UUID string   `json:"uuid"` // SMBIOS
	MACs []string `json:"macs"` // those of its addresses that the overlay is bound to
}

// Of returns the addresses that count for a machine with these UUIDs besides those
// that it has.
func (p Proof) Of(uuids []string) []string {
	if p.UUID == "" || !slices.Contains(uuids, p.UUID) {
		return nil
	}
	return p.MACs
}

// EarlyRuns are runs before a root's services started.
type EarlyRuns struct {
	Overlay string `json:"overlay"` // that they were of
	Runs    int    `json:"runs"`
}

// Of is how many of them were of an overlay.
func (e *EarlyRuns) Of(overlay string) int {
	if e == nil || e.Overlay != overlay {
		return 0
	}
	return e.Runs
}

// Fleet is the newest fleet:current that this node has accepted.
type Fleet struct {
	Minimum spec.Floor `json:"minimum"`
	Issued  int64      `json:"issued"`            // seconds since 1970; 0 where the date was not credible
	Expires int64      `json:"expires,omitempty"` // seconds since 1970
	Reject  []string   `json:"reject,omitempty"`
	LeftOut []string   `json:"leftOut,omitempty"` // paths of keys of a later release, which do not act
	Keys    uint64     `json:"keys,omitempty"`    // newest version of fleet:keys that one named since KeysBy counts
	KeysBy  uint64     `json:"keysBy,omitempty"`  // version of fleet:keys by which it was accepted
}

// Empty reports whether the node has never accepted a fleet:current.
func (f Fleet) Empty() bool {
	return f.Minimum == (spec.Floor{}) && f.Issued == 0 && f.Expires == 0 && f.Reject == nil
}

// Generation is one accepted overlay.
type Generation struct {
	Overlay    string `json:"overlay"` // digest of the overlay document
	Layer      string `json:"layer"`   // that it runs on
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
	Attempts   int    `json:"attempts,omitempty"` // boots that were begun and never proven
	Failed     string `json:"failed,omitempty"`   // why it was rejected here, where its boots are not the reason
	FailedAt   int64  `json:"failedAt,omitempty"` // seconds since 1970
	Again      int64  `json:"again,omitempty"`    // when it is tried again by itself, seconds since 1970; 0 is never

	// Waits is the layer that the overlay names, where it runs on another that it is signed for,
	// too. FailedAhead is why it was taken back from such a layer, which does not judge its own.
	Waits       string `json:"waits,omitempty"`
	FailedAhead string `json:"failedAhead,omitempty"`

	// Unread names the part of it that only a start reads, where it proved itself on a running root
	// and no boot has come up with it since.
	Unread string `json:"unread,omitempty"`
}

// Floor returns what the generation counts as beside others.
func (g Generation) Floor() spec.Floor { return spec.Floor{Epoch: g.Epoch, Generation: g.Generation} }

// IsAhead reports whether the generation runs on a layer that is not its own.
func (g Generation) IsAhead() bool { return g.Waits != "" }

// Rejected reports whether the generation is not tried again on one of its layers by itself.
func (g Generation) Rejected() bool {
	return g.Failed != "" && g.Again == 0 || g.FailedAhead != "" || g.Attempts >= MaxAttempts
}

// Pair reports whether two are the same overlay on the same layer.
func (g Generation) Pair(as Generation) bool { return g.Overlay == as.Overlay && g.Layer == as.Layer }

// Same reports whether two are one publication: the same content of the same generation.
func (g Generation) Same(as Generation) bool {
	return g.Overlay == as.Overlay && g.Epoch == as.Epoch && g.Generation == as.Generation
}

// Best is the newest that proved itself, nil where nothing did: the current one, or what
// came after it and runs on its layer, while its own waits.
func (s *State) Best() *Generation {
	if s.Ahead != nil && s.Current != nil && s.Ahead.Layer == s.Current.Layer {
		return s.Ahead
	}
	return s.Current
}

// Unproven reports whether a generation with which a root came up has yet to prove itself,
// also where something newer was accepted meanwhile.
func (s *State) Unproven(g Generation) bool {
	if s.Staged != nil && s.Staged.Pair(g) {
		return true
	}
	if slices.ContainsFunc(s.Kept(), func(k Generation) bool { return k.Overlay == g.Overlay }) {
		return false // also where an operator has gone back from it
	}
	best := s.Best()
	return best == nil || best.Overlay != g.Overlay && best.Floor().Compare(g.Floor()) < 0
}

// Generations are those that are kept, best first: what the node last ran well, the one
// before, and the one that it accepted and has not proven yet.
func (s *State) Generations() []*Generation {
	ahead := s.Best()
	if ahead == s.Current {
		ahead = nil
	}
	return slices.DeleteFunc([]*Generation{ahead, s.Current, s.Previous, s.Staged}, func(g *Generation) bool { return g == nil })
}

// Layers are those of the generations that are kept, each once.
func (s *State) Layers() (digests []string) {
	for _, g := range s.Generations() {
		if !slices.Contains(digests, g.Layer) {
			digests = append(digests, g.Layer)
		}
	}
	return digests
}

// Clone returns a copy that shares nothing with s.
func (s *State) Clone() *State {
	c := *s
	c.Rejected, c.Fleet.Reject, c.Lost, c.Proof.MACs = slices.Clone(s.Rejected), slices.Clone(s.Fleet.Reject),
		slices.Clone(s.Lost), slices.Clone(s.Proof.MACs)
	for _, g := range []**Generation{&c.Current, &c.Previous, &c.Staged, &c.Ahead, &c.Doubted} {
		*g = copied(*g)
	}
	c.Earlier = slices.Clone(s.Earlier)
	c.Hold, c.Paused, c.Trial, c.Early = copied(s.Hold), copied(s.Paused), copied(s.Trial), copied(s.Early)
	return &c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Time is a time that is kept as seconds since 1970, the zero one where it is not known.
func Time(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// HoldAt returns what an operator on this node has it keep at a time in seconds since
// 1970, nil where it follows.
func (s *State) HoldAt(now int64) *spec.Hold {
	switch {
	case s.Tracking == spec.Following:
		return nil
	case s.Hold == nil: // frozen, and nothing says why
		return &spec.Hold{Kind: spec.HoldFreeze, Since: s.TrackingSince}
	case s.Hold.Until != 0 && s.Hold.Until <= now:
		return nil
	}
	return s.Hold
}

// PauseAt returns an operator's pause at a time in seconds since 1970, nil without one.
func (s *State) PauseAt(now int64) *spec.Hold {
	if s.Paused == nil || s.Paused.Until != 0 && s.Paused.Until <= now {
		return nil
	}
	return s.Paused
}

// Keep has the node keep what it has, for the reason that h gives. An agent that knows no
// holds takes it for frozen.
func (s *State) Keep(h spec.Hold) {
	s.Hold, s.Tracking, s.TrackingSince = &h, spec.Frozen, h.Since
}

// Follow ends that.
func (s *State) Follow(now int64) {
	if s.Tracking != spec.Following {
		s.Hold, s.Tracking, s.TrackingSince = nil, spec.Following, now
	}
}

// maxEarlier is how many good generations are kept beside the current one.
const maxEarlier = 5

// Kept are the generations that this node has run well and can go back to, newest first.
func (s *State) Kept() []Generation {
	var kept []Generation
	for _, g := range append([]*Generation{s.Current, s.Previous}, pointers(s.Earlier)...) {
		if g != nil && !slices.ContainsFunc(kept, func(k Generation) bool { return k.Overlay == g.Overlay }) {
			kept = append(kept, *g)
		}
	}
	slices.SortFunc(kept, func(a, b Generation) int { return b.Floor().Compare(a.Floor()) })
	return kept
}

func pointers(list []Generation) []*Generation {
	var out []*Generation
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

// Forget forgets the generations that ran well before the current one, but for those that
// stay, and returns how many.
func (s *State) Forget(stay ...Generation) (gone int) {
	forgets := func(g Generation) bool {
		return !slices.ContainsFunc(stay, func(k Generation) bool { return k.Overlay == g.Overlay })
	}
	if s.Previous != nil && forgets(*s.Previous) {
		s.Previous, gone = nil, 1
	}
	before := len(s.Earlier)
	s.Earlier = slices.DeleteFunc(s.Earlier, forgets)
	return gone + before - len(s.Earlier)
}

// Return makes one of the kept generations the current one. What was rejected stays known,
// and nothing else waits.
func (s *State) Return(to Generation, here ...string) {
	s.replace(to, here)
	if s.Staged != nil && !s.Staged.Rejected() {
		s.Staged = nil
	}
}

// replace makes a generation the current one. Those before it stay, as far as their layer
// does: that of the current one, the one before, and what the running root can have as it is.
func (s *State) replace(by Generation, here []string) {
	before := s.Kept()
	if s.Current != nil && s.Current.Layer != by.Layer {
		s.Previous = s.Current
	}
	s.Current, s.Earlier, s.Ahead = &by, nil, nil
	for _, g := range before {
		stays := g.Layer == by.Layer || slices.Contains(here, g.Layer) || s.Previous != nil && g.Layer == s.Previous.Layer
		if stays && g.Overlay != by.Overlay && len(s.Earlier) < maxEarlier {
			s.Earlier = append(s.Earlier, g)
		}
	}
}

// SayHold says why a node keeps what it has.
func SayHold(h *spec.Hold) string {
	text := cmp.Or(map[string]string{spec.HoldPin: "pinned", spec.HoldRollback: "rolled back"}[h.Kind], "frozen")
	text = "this node is " + text
	if h.Author != "" {
		text += " by " + h.Author
	}
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}
