// SPDX-License-Identifier: Apache-2.0

// Package evidence says what was tried of a change before it is published: statements of
// rehearsals, signed by a key of role attestation and attached to the layer that a change leads
// to.
//
//	bundle, err := rehearsal.Sign(key)            // who rehearsed
//	err = release.AttachRehearsal(ctx, r, …)
//
//	err = shelf.Check(ctx, evidence.Asked{…})     // who is to publish: nil where one counts
//
// A statement is of a pair: the layer and the settings of before, and those of after. It holds for
// each node that goes the same way, so settings are compared without what names one node. Nodes
// ask for no statement: it is a rule of the operator's side.
package evidence

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Predicate is the type of a statement of a rehearsal.
const Predicate = "https://caisson.dev/rehearsal/v1"

// Results of a [Rehearsal]. Only Passed counts.
const (
	Passed  = "passed"
	Differs = "differs" // it works, and something does not come back, or the class was not the one of the plan
	Failed  = "failed"  // the node does not arrive, is not healthy, or a check fails; also on the way back
)

// End is one end of a change.
type End struct {
	Layer    string `json:"layer"`    // digest of its manifest
	Settings string `json:"settings"` // digest, see [Settings]
}

// Machine describes the machine of a rehearsal.
type Machine struct {
	QEMU   string `json:"qemu"`   // version
	Arch   string `json:"arch"`   // Debian's word
	Memory int    `json:"memory"` // MiB
	KVM    bool   `json:"kvm"`    // else the processor was emulated
}

// Rehearsal is the predicate of a statement; its subject is the manifest of the layer in To.
type Rehearsal struct {
	Fleet    string    `json:"fleet"`
	From     End       `json:"from"`
	To       End       `json:"to"`
	Result   string    `json:"result"`             // Passed, Differs or Failed
	Reason   string    `json:"reason,omitempty"`   // why it is not Passed
	Said     string    `json:"said,omitempty"`     // class that the plan says
	Happened string    `json:"happened,omitempty"` // class that was seen; "" where the node did not arrive
	Machine  Machine   `json:"machine"`
	Version  string    `json:"version"` // of caisson
	IssuedAt time.Time `json:"issuedAt"`
}

// Sign returns a bundle with the signed statement.
func (r Rehearsal) Sign(key crypto.Signer) ([]byte, error) {
	r.IssuedAt = r.IssuedAt.UTC()
	predicate, _ := json.Marshal(r) // texts, numbers and a time of now
	return sign.Attest(key, r.To.Layer, Predicate, predicate)
}

// EndOf returns the end of a change at which a node has an overlay.
func EndOf(o *spec.Overlay) (End, error) {
	settings, err := Settings(o)
	return End{o.Layer, settings}, err
}

// Settings returns the digest of an overlay's settings: all of it without its layer, without what
// names one node (name, identifiers, addresses, sealed secrets), and without what says when it may
// change and not to what (windows, a pause).
func Settings(o *spec.Overlay) (string, error) {
	c := *o
	c.Node, c.Match, c.Layer, c.Variant = "", spec.Match{}, "", ""
	c.Needs = nil // follows from the rest, and from whether there are secrets
	c.Maintenance, c.Pause, c.Secrets = nil, nil, nil
	c.Network.Interfaces = slices.Clone(c.Network.Interfaces)
	for i := range c.Network.Interfaces {
		card := &c.Network.Interfaces[i]
		card.MAC, card.Addresses = "", nil
		if card.Bond != nil {
			bond := *card.Bond
			bond.Members, bond.Primary = make([]string, len(bond.Members)), ""
			card.Bond = &bond
		}
	}
	c.Items.NICs = slices.Clone(c.Items.NICs)
	for i := range c.Items.NICs {
		c.Items.NICs[i].Match.MAC = ""
	}
	doc, err := spec.Encode(c)
	return digest.Of(doc), err
}

// MaxAge is how old a statement may be when a rollout is planned.
const MaxAge = 30 * 24 * time.Hour

// Asked is a change that is to be published.
type Asked struct {
	Rule     string // spec.RehearsedLayer or spec.RehearsedSettings
	From, To End
	Planned  time.Time // the date of the plan: a statement is at most [MaxAge] older
}

// needs reports whether a rule wants a rehearsal of a change.
func (a Asked) needs() bool { return a.From.Layer != a.To.Layer || a.Rule != spec.RehearsedLayer }

// is reports whether a rehearsal was of the change.
func (a Asked) is(r Rehearsal) bool {
	if a.Rule == spec.RehearsedLayer {
		return r.From.Layer == a.From.Layer
	}
	return r.From == a.From && r.To == a.To
}

// Shelf has the statements of a fleet's registry. What it has read of a layer it keeps.
type Shelf struct {
	Registry *registry.Registry
	Fleet    string
	Keys     []sign.Verifier // of role attestation
	Now      time.Time

	rules   check.List[*candidate] // nil is whole
	bundles map[string][][]byte    // by layer
}

// candidate is a bundle of which it is asked whether it states a rehearsal of a change.
type candidate struct {
	*Shelf
	Asked
	bundle []byte
	says   Rehearsal
}

// whole has all checks of a statement, in order.
var whole = check.List[*candidate]{
	{Name: "signature", OK: func(c *candidate) error {
		return sign.VerifyPredicate(c.bundle, c.To.Layer, Predicate, c.Keys, &c.says)
	}},
	{Name: "fleet", OK: func(c *candidate) error {
		return wrong(c.says.Fleet != c.Fleet, "it is of fleet %.80q", c.says.Fleet)
	}},
	{Name: "layer", OK: func(c *candidate) error {
		return wrong(c.says.To.Layer != c.To.Layer, "it is attached to another layer than it names")
	}},
	{Name: "pair", OK: func(c *candidate) error {
		return wrong(!c.is(c.says), "it is of a change from %.80s, or of other settings", c.says.From.Layer)
	}},
	{Name: "clock", OK: func(c *candidate) error {
		return wrong(c.says.IssuedAt.After(c.Now.Add(release.MaxSkew)), "it is dated ahead, %s", c.says.IssuedAt.Format(time.RFC3339))
	}},
	{Name: "age", OK: func(c *candidate) error {
		return wrong(c.says.IssuedAt.Before(c.Planned.Add(-MaxAge)), "it is of %s, more than %d days before the plan",
			c.says.IssuedAt.Format(time.RFC3339), MaxAge/(24*time.Hour))
	}},
}

// wrong is an error where it is so.
func wrong(so bool, format string, args ...any) error {
	if !so {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// ErrNotRehearsed is returned for a change of which no statement counts.
var ErrNotRehearsed = errors.New("not rehearsed")

// Check returns an error where the newest statement of a change that counts does not say that it
// passed, or none counts; then it wraps [ErrNotRehearsed], and has the reason.
func (s *Shelf) Check(ctx context.Context, a Asked) error {
	switch {
	case !a.needs():
		return nil
	case a.To.Layer == "":
		return fmt.Errorf("%w: without a layer no machine can boot it", ErrNotRehearsed)
	case len(s.Keys) == 0:
		return fmt.Errorf("%w: the site names no attestation key", ErrNotRehearsed)
	}
	bundles, err := s.of(ctx, a.To.Layer)
	if err != nil {
		return err
	}
	var newest Rehearsal
	furthest, excuse := -1, errors.New("there is none")
	for _, bundle := range bundles {
		c := &candidate{Shelf: s, Asked: a, bundle: bundle}
		passed, err := c.run()
		switch {
		case err == nil && !c.says.IssuedAt.Before(newest.IssuedAt):
			newest = c.says
		case err != nil && passed > furthest:
			furthest, excuse = passed, err
		}
	}
	switch {
	case newest.IssuedAt.IsZero():
		return fmt.Errorf("%w: no statement of it counts: %w", ErrNotRehearsed, excuse)
	case newest.Result != Passed:
		return fmt.Errorf("%w: the newest statement, of %s, says %.20q: %.200s", ErrNotRehearsed,
			newest.IssuedAt.Format(time.RFC3339), newest.Result, newest.Reason)
	}
	return nil
}

// run returns how many checks a candidate passed, so that the reason is that of the one that came
// furthest.
func (c *candidate) run() (int, error) {
	rules := c.rules
	if rules == nil {
		rules = whole
	}
	for i, one := range rules {
		if err := one.OK(c); err != nil {
			return i, err
		}
	}
	return len(rules), nil
}

// of returns the bundles that are attached to a layer.
func (s *Shelf) of(ctx context.Context, layer string) ([][]byte, error) {
	if found, read := s.bundles[layer]; read {
		return found, nil
	}
	if s.bundles == nil {
		s.bundles = map[string][][]byte{}
	}
	found, err := release.Rehearsals(ctx, s.Registry, layer)
	if err == nil { // else the next one who asks may read them
		s.bundles[layer] = found
	}
	return found, err
}
