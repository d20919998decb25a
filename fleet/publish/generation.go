// SPDX-License-Identifier: Apache-2.0

package publish

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
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Generation names one state of a fleet. Its root has the tag fleet:gen-EPOCH-NUMBER.
type Generation struct {
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"generation"`
}

func (g Generation) tag() string { return fmt.Sprintf("gen-%d-%d", g.Epoch, g.Number) }

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
		ok = err == nil && g.tag() == tag
	}
	return g, ok
}

// Past is a state of a fleet that was published, verified.
type Past struct {
	Generation
	Root   spec.FleetIndex
	Issued time.Time
	index  *index.Index
}

// Generations lists the generations whose roots are kept, the newest first.
func (f *Fleet) Generations(ctx context.Context) ([]Generation, error) {
	tags, err := f.p.Registry.Tags(ctx, oci.RepoFleet)
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
	return Generation{}, hint("caisson history lists them; prune removes old ones", "generation %s is not kept", text)
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
	if got := (Generation{l.index.Epoch, l.index.Generation}); got != l.past || l.index.Reserved {
		return refusal.New(refusal.Contradiction, "it leads to generation %s", got)
	}
	return nil
}

// errNotKept is returned for a generation whose root was removed.
var errNotKept = errors.New("is not kept")

// Past reads the root of a generation. Its shards are read as they are asked for.
func (f *Fleet) Past(ctx context.Context, g Generation) (*Past, error) {
	l, err := f.p.readPast(ctx, f.v.policy, g)
	if refusal.OfKeys(err) && f.v.policy.Chain != nil {
		err = cli.WithHint(err, "no key that counts has signed this generation: take the site as it was then out of version "+
			"control, and publish it")
	}
	if err != nil {
		return nil, err
	}
	return f.p.pastOf(l), nil
}

func (p *Publisher) pastOf(l *looked) *Past {
	return &Past{Generation: l.past, Root: l.index, Issued: l.said.IssuedAt, index: p.openIndex(l.index)}
}

// readPast reads the root of a generation, and verifies it by the operators of a policy.
func (p *Publisher) readPast(ctx context.Context, policy Policy, g Generation) (*looked, error) {
	c, err := document(ctx, p.Registry.Source(), g.tag(), oci.TypeFleetIndex, maxIndex)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, hint("caisson history lists them; prune removes old ones", "generation %s %w", g, errNotKept)
	}
	if err != nil {
		return nil, err
	}
	l := &looked{candidate: c, policy: policy, past: g}
	if err := p.allRules().past.Run(l); err != nil {
		return nil, fmt.Errorf("fleet:%s: %w", g.tag(), err)
	}
	return l, nil
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
	return o, ofNode(node, err)
}

// stored reads the document of an overlay of any generation.
func (f *Fleet) stored(ctx context.Context, c spec.Content) ([]byte, error) {
	doc, err := oci.ReadBlob(ctx, f.p.Registry.Source(), oci.RepoNode,
		oci.Descriptor{MediaType: oci.TypeOverlay, Digest: c.Overlay, Size: c.Size}, oci.MaxOverlay)
	if err != nil {
		err = fmt.Errorf("overlay of generation %d: %w", c.Generation, err)
	}
	return doc, err
}

func (f *Fleet) content(ctx context.Context, node string, c spec.Content) (*spec.Overlay, error) {
	doc, err := f.stored(ctx, c)
	if err != nil {
		return nil, err
	}
	var o spec.Overlay
	if err := spec.Decode(doc, &o); err != nil {
		return nil, fmt.Errorf("overlay of generation %d: %w", c.Generation, err)
	}
	if o.Node != node || o.Fleet != f.v.policy.Fleet || o.Layer != c.Layer {
		return nil, refusal.New(refusal.Contradiction, "overlay %s is for node %q, fleet %q, layer %s", c.Overlay, o.Node, o.Fleet, o.Layer)
	}
	return &o, nil
}

// aged is a secret of which nodes would get another value than they have, or none.
type aged struct {
	name     string
	replaced bool // it was sealed to another recipient than the node has now, or is accepted with
}

// noteSecrets notes which secrets of an overlay are not those that a node has now.
func (e *editing) noteSecrets(ctx context.Context, w *work, o *spec.Overlay) error {
	if len(o.Secrets) == 0 || e.h.OldSecrets {
		return nil
	}
	looked, err := e.overlay(ctx, w.name)
	if err != nil {
		return err
	}
	accepted := func(to string) bool { return e.h.Recipients == nil || e.h.Recipients[w.name] == to }
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range o.Secrets {
		now := looked.overlay.Secret(s.Name)
		if now != nil && *now == s && accepted(s.To) {
			continue
		}
		if e.older == nil {
			e.older = map[aged][]string{}
		}
		one := aged{s.Name, now != nil && now.To != s.To || !accepted(s.To)}
		e.older[one] = append(e.older[one], w.name)
	}
	return nil
}

// olderSecrets refuses what would bring secrets back.
func olderSecrets(older map[aged][]string) error {
	if len(older) == 0 {
		return nil
	}
	var lines []string
	for one, nodes := range older {
		what := "would be an older one:"
		if one.replaced {
			what = "was sealed to a recipient that no longer belongs to"
		}
		slices.SortFunc(nodes, plain.Natural)
		lines = append(lines, fmt.Sprintf("secret %s %s %s", one.name, what, plain.Some(nodes, 5)))
	}
	slices.Sort(lines)
	return hint("--old-secrets publishes them all the same; 'caisson publish' seals the present ones", "%s", strings.Join(lines, "; "))
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

// now returns the time behind a wait. It never goes back.
func (p *Publisher) now() time.Time {
	if p.Clock == nil {
		return p.Now
	}
	return latest(p.Now, p.Clock())
}

// issueTime returns the time to sign: now, or a second after the newest that is
// published, so that what is newer always has the later date.
func (f *Fleet) issueTime(ctx context.Context) (time.Time, error) {
	p, v := f.p, f.v
	date, _ := p.Registry.Date(ctx) // zero when it has none
	t := &times{now: p.now(), registry: date, newest: v.newest}
	if err := p.allRules().clock.Run(t); err != nil {
		return time.Time{}, err
	}
	return latest(t.now, v.newest.Add(time.Second)), nil
}
