// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

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
