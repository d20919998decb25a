// SPDX-License-Identifier: Apache-2.0

// Package preview says what publishing a site would change. It makes the same
// decisions as a publish, from the same verified index, rows and layers, and
// leaves the comparing to spec/site/plan; a property test publishes afterwards
// and compares.
//
// Before that, [Check] says what verbs would refuse of a site that is valid in itself.
//
// It writes nothing. cmd/caisson and caisson-kube import it.
package preview

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// readers is how many overlays are read at a time.
const readers = 16

// Preview holds what a publish would start from.
type Preview struct {
	Site      *site.Site
	Publisher *publish.Publisher // nil where nothing was ever published
	Policy    publish.Policy
	Layer     string // reference of the layers that publish would name

	Advise plan.Advise // nil for no word on advisories
}

// Plan compares the nodes, or only those that are named.
func (w Preview) Plan(ctx context.Context, only []string) (*plan.Plan, error) {
	names, err := w.names(only)
	if err != nil {
		return nil, err
	}
	l := &release.Planned{Context: ctx, Read: func(context.Context, string) (release.Layer, error) {
		return release.Layer{}, oci.ErrNotFound // nothing was ever published
	}}
	if w.Publisher == nil {
		p := plan.New(w.Site, l)
		for _, name := range names {
			p.Add(name, nil)
		}
		w.leftOut(p, only)
		return p.Plan(), nil
	}
	fleet, err := w.Publisher.Read(ctx, w.Policy)
	if err != nil {
		return nil, err
	}
	l.Say = w.Publisher.Say
	l.Read = func(ctx context.Context, digest string) (release.Layer, error) {
		return release.Read(ctx, w.Publisher.Registry, digest)
	}
	if w.Site.HasLayer() {
		l.Current, err = w.Publisher.Layers(ctx, w.Policy, w.Layer)
		if err != nil && !errors.Is(err, oci.ErrNotFound) {
			return nil, err
		}
	}
	p := plan.New(w.Site, l)
	rows, err := fleet.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	underWay, err := fleet.UnderWay(ctx)
	if err != nil {
		return nil, err
	}
	p.UnderWay(underWay)
	p.Advise(w.Advise)
	if err := w.compare(ctx, p, fleet, rows, names); err != nil {
		return nil, err
	}
	w.leftOut(p, only)
	if len(only) == 0 {
		for name := range rows {
			if !w.Site.Fleet().Has(name) && w.Site.Fleet().WhyLeftOut(name) == "" {
				p.Gone(name)
			}
		}
	}
	out := p.Plan()
	out.Terms = w.terms(fleet)
	return out, l.Err
}

// leftOut notes the nodes that keep what they have because they are left out.
func (w Preview) leftOut(p *plan.Planner, only []string) {
	for _, l := range w.Site.Fleet().Left {
		if len(only) == 0 {
			p.Held(l.Name, "left out: "+l.Why)
		}
	}
}

// names returns the nodes to compare.
func (w Preview) names(only []string) ([]string, error) {
	for _, name := range only {
		if _, err := w.Site.Overlay(name, ""); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, n := range w.Site.Nodes() {
		if len(only) == 0 || slices.Contains(only, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// compare reads the overlays that their rows do not settle, a few at a time.
func (w Preview) compare(ctx context.Context, p *plan.Planner, fleet *publish.Fleet, rows index.Rows, names []string) error {
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, name := range names {
		row, published := rows[name]
		last, over := publish.SplitHolds(row.Holds, w.Publisher.Now)
		for _, h := range over {
			p.Ended(name, h.Kind, publish.HoldText([]spec.Hold{h}))
		}
		switch {
		case reading.Err() != nil:
		case len(last) > 0:
			p.Held(name, publish.HoldText(last))
		case !published:
			p.Add(name, nil)
		case !p.AddRow(name, row.Overlay, row.Layer):
			group.Go(func() error {
				o, err := fleet.Overlay(reading, name)
				if err != nil {
					return fmt.Errorf("read overlay: %w", err)
				}
				p.Add(name, o)
				return nil
			})
		}
	}
	return cmp.Or(group.Wait(), context.Cause(ctx))
}

// Digest returns the digest of all that is signed when a site is published as it is, and in the
// place of what: the [plan.Terms]; of each node its name, its layer and all of its overlay; which
// keep what they have, as they are left out; and the epoch and generation that were given out
// last. A person who agrees to it agrees to nothing else, and once: the publish takes the next
// generation, after which the same content has another digest. A renewal of signatures takes
// none. Flags of a publish are not in it: who types them answers for them.
func (w Preview) Digest(fleet *publish.Fleet, from spec.Floor, nodes []publish.Node) (string, error) {
	terms := w.terms(fleet)
	if place := w.Publisher.Registry.Ref(); place.IsLayout() { // the same name is another place elsewhere
		dir, err := filepath.Abs(place.Layout)
		if err != nil {
			return "", err
		}
		terms.Registry = dir
	}
	h := sha256.New()
	fmt.Fprintln(h, "act") // no digest of the old kind begins so
	if err := json.NewEncoder(h).Encode(terms); err != nil {
		return "", err
	}
	for _, r := range w.Site.Maintenance().Rollouts { // of two with the same waves one may divide fewer nodes otherwise
		fmt.Fprintf(h, "%s\n", r.Definition())
	}
	fmt.Fprintf(h, "from %d %d\n", from.Epoch, from.Generation)
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b publish.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s %s\n", n.Name, n.Layer, digest.Of(doc))
	}
	for _, l := range w.Site.Fleet().Left {
		fmt.Fprintf(h, "%s is left out\n", l.Name)
	}
	return publish.Act + digest.From(h), nil
}

// terms returns what a publish signs beside overlays.
func (w Preview) terms(fleet *publish.Fleet) *plan.Terms {
	policy := fleet.Policy()
	t := &plan.Terms{Registry: w.Publisher.Registry.Ref().String(), Lifetime: int64(policy.Lifetime / time.Second),
		Threshold: max(1, policy.Threshold), Rollouts: []plan.RolloutTerms{}}
	for _, r := range w.Site.Maintenance().Rollouts {
		one := plan.RolloutTerms{Name: r.Name, Rule: r.Rule, Waves: []plan.WaveTerms{}, Budget: r.Budget(w.Site.Nodes())}
		if _, divide, err := w.Site.Rollout(r.Name); err == nil { // else it is for no node
			for _, wave := range divide(func(string) bool { return true }) {
				one.Waves = append(one.Waves, plan.WaveTerms{Name: wave.Name, Nodes: wave.Nodes})
			}
		}
		t.Rollouts = append(t.Rollouts, one)
	}
	return t
}
