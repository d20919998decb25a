// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"fmt"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Pushed is what build -o json prints. Before it, on standard error, come the
// events of builder.Event, one a line.
type Pushed struct {
	Index   string          `json:"index"` // digest
	Version string          `json:"version"`
	Layers  []PushedVariant `json:"layers"`
}

// PushedVariant is one variant in [Pushed].
type PushedVariant struct {
	Variant string `json:"variant"`
	Digest  string `json:"digest"`
}

// PushAll pushes what [Bake] made of a site as one version, with the account ledger beside
// it, and makes it [Current]. A variant that is as a layer of the current version stays
// that layer, under its older version and name: another digest would have its nodes start
// over for nothing.
func (p *Pusher) PushAll(ctx context.Context, fleet, version string, built *Built) (*Pushed, error) {
	if err := p.overtaken(ctx, fleet, built.Ledger); err != nil { // before gigabytes are pushed
		return nil, err
	}
	pushed := &Pushed{Version: version}
	var entries []oci.Descriptor
	released := p.released(ctx)
	for i, v := range built.Variants {
		r := built.Results[i]
		r.Layer.Version = version
		for _, old := range released {
			if same, err := sameButNamed(old, r.Layer); err != nil {
				return nil, err
			} else if same {
				r.Layer.Version, r.Layer.Variant = old.Version, old.Variant
				break
			}
		}
		suite := ""
		if v.Recipe.Base.Debian != nil {
			suite = v.Recipe.Base.Debian.Suite
		}
		d, err := p.Push(ctx, r, suite)
		if err != nil {
			return nil, fmt.Errorf("push variant %s: %w", v.Name, err)
		}
		entries = append(entries, d)
		pushed.Layers = append(pushed.Layers, PushedVariant{Variant: v.Name, Digest: d.Digest})
	}
	if err := p.overtaken(ctx, fleet, built.Ledger); err != nil { // the push took its time
		return nil, err
	}
	var err error
	pushed.Index, err = p.Index(ctx, entries, built.Ledger, fleet, version)
	return pushed, err
}

// released returns the layers of the current version that the pusher's own key
// released; none where that cannot be told.
func (p *Pusher) released(ctx context.Context) (out []spec.Layer) {
	if p.Release == nil {
		return nil
	}
	key, err := sign.NewVerifier(p.Release.Public())
	if err != nil {
		return nil
	}
	layers, err := Open(ctx, p.Registry, Current)
	if err != nil {
		return nil // nothing is there, or nothing that is known; what is wrong with the registry, pushing tells
	}
	for _, l := range layers {
		if Verify(ctx, p.Registry, l.Digest, []sign.Verifier{key}) == nil {
			out = append(out, l.Layer)
		}
	}
	return out
}

// sameButNamed reports whether two layers differ in nothing but their version and the name
// of their variant. The name follows from what else the site has: a variant that becomes
// the default is no other layer.
func sameButNamed(a, b spec.Layer) (bool, error) {
	a.Version, a.Variant = b.Version, b.Variant
	was, err := spec.Encode(a)
	if err != nil {
		return false, err
	}
	is, err := spec.Encode(b)
	return bytes.Equal(was, is), err
}
