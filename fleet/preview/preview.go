// SPDX-License-Identifier: Apache-2.0

// Package preview says what publishing a site would change. It makes the same
// decisions as a publish, from the same verified index, rows and layers, and
// leaves the comparing to spec/site/plan; a property test publishes afterwards
// and compares.
//
// It writes nothing. cmd/caisson and caisson-kube import it.
package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// readers is how many overlays are read at a time.
const readers = 16

// Preview is what a publish would start from.
type Preview struct {
	Site      *site.Site
	Publisher *publish.Publisher // nil where nothing was ever published
	Policy    publish.Policy
	Layer     string // reference of the layers that publish would name
}

// Plan compares the nodes, or only those that are named.
func (w Preview) Plan(ctx context.Context, only []string) (*plan.Plan, error) {
	names, err := w.names(only)
	if err != nil {
		return nil, err
	}
	l := &layers{Planned: release.Planned{Context: ctx, Read: func(context.Context, string) (release.Layer, error) {
		return release.Layer{}, oci.ErrNotFound // nothing was ever published
	}}}
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
		l.next, err = w.Publisher.Layers(ctx, w.Policy, w.Layer)
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
	if err := w.compare(ctx, p, fleet, rows, names); err != nil {
		return nil, err
	}
	w.leftOut(p, only)
	if len(only) == 0 {
		for name := range rows {
			if !w.Site.Has(name) && w.Site.WhyLeftOut(name) == "" {
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
	for _, l := range w.Site.LeftOut() {
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan string)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for name := range next {
				o, err := fleet.Overlay(ctx, name)
				if err != nil {
					cancel(fmt.Errorf("read overlay: %w", err))
					continue
				}
				p.Add(name, o)
			}
		})
	}
	for _, name := range names {
		row, published := rows[name]
		last, over := hold.Split(row.Holds, w.Publisher.Now)
		for _, h := range over {
			p.Ended(name, h.Kind, hold.String([]spec.Hold{h}))
		}
		switch {
		case ctx.Err() != nil:
		case len(last) > 0:
			p.Held(name, hold.String(last))
		case !published:
			p.Add(name, nil)
		case !p.AddRow(name, row.Overlay, row.Layer):
			next <- name
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// layers gives a planner the layers of a registry.
type layers struct {
	release.Planned
	next []release.Layer
}

// Next implements plan.Layers.
func (l *layers) Next(v site.Variant) *plan.Layer {
	one, err := release.ForVariant(l.next, site.RecipeID(v.Recipe), v.Name)
	if err != nil {
		return nil // it has to be built
	}
	return l.Add(one)
}
