// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site"
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

// PushAll pushes what [Bake] made of a site's variants, in their order, as one
// version, and makes it [Current].
func (p *Pusher) PushAll(ctx context.Context, fleet, version string, variants []site.Variant, results []*builder.Result) (*Pushed, error) {
	pushed := &Pushed{Version: version}
	var entries []oci.Descriptor
	for i, v := range variants {
		results[i].Layer.Version = version
		suite := ""
		if v.Recipe.Base.Debian != nil {
			suite = v.Recipe.Base.Debian.Suite
		}
		d, err := p.Push(ctx, results[i], suite)
		if err != nil {
			return nil, fmt.Errorf("push variant %s: %w", v.Name, err)
		}
		entries = append(entries, d)
		pushed.Layers = append(pushed.Layers, PushedVariant{Variant: v.Name, Digest: d.Digest})
	}
	var err error
	pushed.Index, err = p.Index(ctx, entries, fleet, version)
	return pushed, err
}
