// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Report is what verify -o json prints.
type Report struct {
	Fleet      string  `json:"fleet"`
	Epoch      uint64  `json:"epoch"`
	Generation uint64  `json:"generation"`
	Findings   []Check `json:"checks"`
}

// Check is the verdict on one thing.
type Check struct {
	What    string `json:"what"`             // "fleet:current", "node:superhost", "layer:sha256:…", "service:sha256:…", "image:sha256:… root:…"
	Verdict string `json:"verdict"`          // "ok", "expired", "missing" or a refusal code
	Detail  string `json:"detail,omitempty"` // why not
}

// OK says whether nodes would believe all of it.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(c Check) bool { return c.Verdict != "ok" })
}

// Verify checks a published fleet as its nodes would: every overlay under its name,
// fleet:current, that the images of services are there, and the release signature of
// every layer that is named. The policy
// is the site's, or has the keys and the threshold alone. A registry that fails to
// answer is an error, not a verdict.
func (p *Publisher) Verify(ctx context.Context, policy Policy, only []string) (*Report, error) {
	q := *p
	q.AcceptExpired = true // it is a finding, not the end
	v, err := q.published(ctx, policy)
	if err != nil {
		return nil, err
	}
	x := v.index.Root
	r := &Report{Fleet: x.Fleet, Epoch: x.Epoch, Generation: x.Generation, Findings: []Check{}}
	if err := r.add("fleet:current", nil, v.current.Expired, v.current.Expires.Format(time.RFC3339)); err != nil {
		return nil, err
	}
	names := only
	if len(only) == 0 {
		rows, err := v.index.All(ctx)
		if err != nil {
			return nil, err
		}
		names = slices.Sorted(maps.Keys(rows))
	}
	layers, services := map[string]bool{}, map[string]spec.Blob{}
	for _, name := range names {
		accepted, err := p.asNode(ctx, v, name)
		if err != nil {
			if err := r.add("node:"+name, err, false, ""); err != nil {
				return nil, err
			}
			continue
		}
		if err := r.add("node:"+name, nil, accepted.Expired, "at "+accepted.Expires.Format(time.RFC3339)); err != nil {
			return nil, err
		}
		if accepted.Overlay.Layer != "" {
			layers[accepted.Overlay.Layer] = true
		}
		for _, s := range accepted.Overlay.Services {
			services[s.Image.Digest] = s.Image
		}
	}
	for _, digest := range slices.Sorted(maps.Keys(services)) {
		if err := r.add("service:"+digest, p.serviceIsThere(ctx, services[digest]), false, ""); err != nil {
			return nil, err
		}
	}
	for _, digest := range slices.Sorted(maps.Keys(layers)) {
		found, err := p.Layers(ctx, v.policy, digest)
		if err := r.add("layer:"+digest, err, false, ""); err != nil {
			return nil, err
		}
		if !p.Images {
			continue
		}
		for _, l := range found { // none of a layer that is refused
			if err := r.addImages(ctx, l); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// addImages reads the images of a layer, but for those that another one has and named
// the same root of.
func (r *Report) addImages(ctx context.Context, l release.Layer) error {
	for _, i := range l.Images {
		what := "image:" + i.Digest
		if root := l.Roots[i.Digest]; root != "" {
			what += " root:" + root
		}
		if slices.ContainsFunc(r.Findings, func(c Check) bool { return c.What == what }) {
			continue
		}
		if err := r.add(what, l.CheckImage(ctx, i), false, ""); err != nil {
			return err
		}
	}
	return nil
}

// serviceIsThere wants the image of a service in the registry, whose overlay was verified.
func (p *Publisher) serviceIsThere(ctx context.Context, image spec.Blob) error {
	there, err := p.Registry.HasBlob(ctx, oci.RepoService, oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: image.Digest, Size: image.Size})
	if err == nil && !there {
		err = fmt.Errorf("%w: no node can fetch it; 'caisson publish' brings it", oci.ErrNotFound)
	}
	return err
}

// asNode looks under a node's name, where the node does.
func (p *Publisher) asNode(ctx context.Context, v *view, name string) (*trust.Accepted, error) {
	c, err := trust.Overlay(ctx, p.Registry.Source(), []string{name}, "")
	if err != nil {
		return nil, err
	}
	// The machine is given every identifier that the overlay asks for: which
	// machine it is cannot be seen from here.
	var o spec.Overlay
	_ = spec.Decode(c.Document, &o) // Accept says what is wrong with it
	a, err := trust.Accept(c, spec.Bootstrap{Fleet: v.index.Root.Fleet, Keys: pems(v.policy.Operator), Threshold: v.policy.Threshold},
		trust.Identity{Node: name, MACs: o.Match.MACs, UUIDs: o.Match.UUIDs},
		spec.Floor{Epoch: v.index.Root.Epoch}, trust.Clock{RTC: p.Now}, trust.Known{Fleet: v.current})
	if err != nil {
		return nil, err
	}
	row, ok, err := v.index.Row(ctx, name)
	if err != nil {
		return nil, err
	}
	if ok && a.Floor.Generation < row.Generation {
		return nil, refusal.New(refusal.Rollback, "generation %d, the index says %d", a.Floor.Generation, row.Generation)
	}
	return a, nil
}

// add makes a finding of a verdict; what is none is returned.
func (r *Report) add(what string, err error, expired bool, when string) error {
	c := Check{What: what, Verdict: "ok"}
	switch code := refusal.Of(err); {
	case code != "":
		c.Verdict, c.Detail = string(code), err.Error()
	case errors.Is(err, oci.ErrNotFound):
		c.Verdict, c.Detail = "missing", err.Error()
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case expired:
		c.Verdict, c.Detail = "expired", fmt.Sprintf("expired %s", when)
	}
	r.Findings = append(r.Findings, c)
	return nil
}
