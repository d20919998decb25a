// SPDX-License-Identifier: Apache-2.0

package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Generation names one state of a fleet. Its root has the tag fleet:gen-EPOCH-NUMBER.
type Generation struct {
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"generation"`
}

// GenerationOf returns the generation of a root.
func GenerationOf(root spec.FleetIndex) Generation { return Generation{root.Epoch, root.Generation} }

// Tag returns the tag of its root.
func (g Generation) Tag() string { return fmt.Sprintf("gen-%d-%d", g.Epoch, g.Number) }

// String returns the form that ParseGeneration reads.
func (g Generation) String() string { return fmt.Sprintf("%d-%d", g.Epoch, g.Number) }

// Compare is negative where g came before other, and positive where it came after it.
func (g Generation) Compare(other Generation) int {
	return cmp.Or(cmp.Compare(g.Epoch, other.Epoch), cmp.Compare(g.Number, other.Number))
}

func parseTag(tag string) (g Generation, ok bool) {
	number, isOne := strings.CutPrefix(tag, "gen-")
	if isOne {
		_, err := fmt.Sscanf(number, "%d-%d", &g.Epoch, &g.Number)
		ok = err == nil && g.Tag() == tag
	}
	return g, ok
}

// Past is a state of a fleet that was published, verified.
type Past struct {
	Generation
	Root      spec.FleetIndex
	Candidate trust.Candidate     // its document, as it is signed
	Said      sign.FleetPredicate // what its signature says

	index *index.Index
}

// Generations lists the generations whose roots are kept, the newest first.
func (r *Reader) Generations(ctx context.Context) ([]Generation, error) {
	tags, err := r.Registry.Tags(ctx, oci.RepoFleet)
	if err != nil {
		return nil, fmt.Errorf("list the generations: %w", err)
	}
	var list []Generation
	for _, tag := range tags {
		if g, ok := parseTag(tag); ok {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b Generation) int { return b.Compare(a) })
	return list, nil
}

// Generations lists the generations whose roots are kept, the newest first.
func (f *Fleet) Generations(ctx context.Context) ([]Generation, error) { return f.r.Generations(ctx) }

// Find returns the generation that a text names: "12" in the newest epoch that has
// it, "2-12" in epoch 2.
func (f *Fleet) Find(ctx context.Context, text string) (Generation, error) {
	list, err := f.Generations(ctx)
	if err != nil {
		return Generation{}, err
	}
	number, numberErr := strconv.ParseUint(text, 10, 64)
	for _, g := range list {
		if text == g.String() || numberErr == nil && number == g.Number {
			return g, nil
		}
	}
	if _, ok := parseTag("gen-" + text); !ok && numberErr != nil {
		return Generation{}, cli.Usage("as in 12, or 2-12 for generation 12 of epoch 2", "%.40q is not a generation", text)
	}
	return Generation{}, cli.Hint("caisson history lists them; prune removes old ones", "generation %s is not kept", text)
}

// pastChecks is the rule for the root of an earlier generation. It may have expired:
// it is looked at, and what comes of it is signed again.
var pastChecks = check.List[*looked]{
	{Name: "past signature", OK: indexIsSigned},
	{Name: "past form", OK: indexParses},
	{Name: "past fleet", OK: indexIsOurs},
	{Name: "past generation", OK: generationIsWanted},
}

// generationIsWanted: a tag is nobody's promise.
func generationIsWanted(l *looked) error {
	if got := GenerationOf(l.index); got != l.past || l.index.Reserved {
		return refusal.New(refusal.Contradiction, "it leads to generation %s", got)
	}
	return nil
}

// ErrNotKept is returned for a generation whose root was removed.
var ErrNotKept = errors.New("is not kept")

// Past reads the root of a generation. Its shards are read as they are asked for.
func (f *Fleet) Past(ctx context.Context, g Generation) (*Past, error) {
	past, err := f.r.Past(ctx, f.v.Policy, g)
	if refusal.OfKeys(err) && f.v.Policy.Chain != nil {
		err = cli.WithHint(err, "no key that counts has signed this generation: take the site as it was then out of version "+
			"control, and publish it")
	}
	return past, err
}

// Past reads the root of a generation, and verifies it by the operators of a policy.
func (r *Reader) Past(ctx context.Context, policy Policy, g Generation) (*Past, error) {
	c, err := Document(ctx, r.Registry.Source(), g.Tag(), oci.TypeFleetIndex, maxIndex)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, cli.Hint("caisson history lists them; prune removes old ones", "generation %s %w", g, ErrNotKept)
	}
	if err != nil {
		return nil, err
	}
	l := &looked{candidate: c, policy: policy, past: g}
	if err := r.allRules().past.Run(l); err != nil {
		return nil, fmt.Errorf("fleet:%s: %w", g.Tag(), err)
	}
	return &Past{g, l.index, c, l.said, r.openIndex(l.index)}, nil
}

// Row returns what a node had, and whether it was published.
func (s *Past) Row(ctx context.Context, node string) (spec.Published, bool, error) {
	return s.index.Row(ctx, node)
}

// Nodes returns all rows.
func (s *Past) Nodes(ctx context.Context) (index.Rows, error) { return s.index.All(ctx) }

// Content reads an overlay of any generation. A verified row vouches for it.
func (f *Fleet) Content(ctx context.Context, node string, c spec.Content) (*spec.Overlay, error) {
	o, err := f.content(ctx, node, c)
	return o, index.OfNode(node, err)
}

// Stored reads the document of an overlay of any generation.
func (f *Fleet) Stored(ctx context.Context, c spec.Content) ([]byte, error) {
	doc, err := oci.ReadBlob(ctx, f.r.Registry.Source(), oci.RepoNode,
		oci.Descriptor{MediaType: oci.TypeOverlay, Digest: c.Overlay, Size: c.Size}, oci.MaxOverlay)
	if err != nil {
		err = fmt.Errorf("overlay of generation %d: %w", c.Generation, err)
	}
	return doc, err
}

func (f *Fleet) content(ctx context.Context, node string, c spec.Content) (*spec.Overlay, error) {
	doc, err := f.Stored(ctx, c)
	if err != nil {
		return nil, err
	}
	var o spec.Overlay
	if err := spec.Decode(doc, &o); err != nil {
		return nil, fmt.Errorf("overlay of generation %d: %w", c.Generation, err)
	}
	if o.Node != node || o.Fleet != f.v.Policy.Fleet || o.Layer != c.Layer {
		return nil, refusal.New(refusal.Contradiction, "overlay %s is for node %q, fleet %q, layer %s", c.Overlay, o.Node, o.Fleet, o.Layer)
	}
	return &o, nil
}

// times are the clocks that a time of issue is compared with.
type times struct {
	now      time.Time
	registry time.Time // zero when it does not say
	newest   time.Time // newest time of issue of all that is published
}

// clockChecks is the rule for the time that is about to be signed. A date far in
// the future outlives every correction: nodes never go back behind it.
var clockChecks = check.List[*times]{
	{Name: "clock and registry", OK: registryAgrees},
	{Name: "clock and last issue", OK: timeGoesOn},
}

const (
	maxSkew   = time.Hour       // between this machine and the registry
	smallSkew = release.MaxSkew // between two publishers
)

func registryAgrees(t *times) error {
	if d := t.now.Sub(t.registry); !t.registry.IsZero() && (d > maxSkew || d < -maxSkew) {
		return cli.WithHint(refusal.New(refusal.Validity, "this machine's clock says %s, the registry's %s",
			t.now.Format(time.RFC3339), t.registry.Format(time.RFC3339)), "set the clock of the machine that signs")
	}
	return nil
}

func timeGoesOn(t *times) error {
	if t.now.Add(smallSkew).Before(t.newest) {
		return cli.WithHint(refusal.New(refusal.Validity, "this machine's clock says %s, the last publish was at %s",
			t.now.Format(time.RFC3339), t.newest.Format(time.RFC3339)),
			"set the clock of the machine that signs; if the last publish was wrong, see docs/security.md")
	}
	return nil
}

// IssueTime returns the time to sign by a clock that says now: that, or a second after the newest
// that is published, so that what is newer always has the later date.
func (f *Fleet) IssueTime(ctx context.Context, now time.Time) (time.Time, error) {
	date, _ := f.r.Registry.Date(ctx) // zero when it has none
	t := &times{now: now, registry: date, newest: f.v.newest}
	if err := f.r.allRules().clock.Run(t); err != nil {
		return time.Time{}, err
	}
	return latest(t.now, f.v.newest.Add(time.Second)), nil
}

// Foreign reports whether a generation is one that a revocation did not know.
func (f *Fleet) Foreign(g Generation) bool {
	return slices.ContainsFunc(f.root().Foreign, func(s spec.Span) bool {
		return g.Epoch == s.Epoch && s.From <= g.Number && g.Number <= s.To
	})
}

// PastOf is [Fleet.Past] also of what only keys signed that count no more; proven is false
// then: it can be looked at, and rejected. It says who signed.
func (f *Fleet) PastOf(ctx context.Context, g Generation) (past *Past, by []string, proven bool, err error) {
	versions, err := f.v.Policy.Versions()
	if err != nil {
		return nil, nil, false, err
	}
	past, err = f.r.Past(ctx, f.v.Policy, g)
	proven = err == nil
	var operators []sign.Verifier
	for _, of := range versions {
		of.Fleet = f.v.Policy.Fleet
		if refusal.OfKeys(err) {
			if old, wrong := f.r.Past(ctx, of, g); wrong == nil {
				past, err = old, nil
			}
		}
		operators = append(operators, of.Operator...)
	}
	if err != nil {
		return nil, nil, false, err
	}
	for _, b := range past.Candidate.Bundles {
		said, err := sign.VerifyFleet([][]byte{b}, operators, 1, oci.Digest(past.Candidate.Document), sign.PredicateIndex)
		if err == nil && !slices.Contains(by, said.Keys[0]) {
			by = append(by, said.Keys[0])
		}
	}
	return past, by, proven, nil
}

// Revoked reports whether a key is never accepted again.
func (f *Fleet) Revoked(id string) bool { return slices.Contains(f.v.Policy.Revoked(), id) }
