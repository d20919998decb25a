// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec/site"
)

// Texts returns files that services bring to nodes of the site.
type Texts func(ctx context.Context, s *site.Site, nodes []string) ([][]site.Text, error)

// Ask has the programs of layers that were built with a cache look at the files of nodes that are to
// be published, and at those that brought returns; nil is none. A refusal is an error. It returns
// a sentence for each layer whose programs were not asked about such files.
func (w Preview) Ask(ctx context.Context, nodes []publish.Node, cache string, brought Texts) (unasked []string, err error) {
	written, some := map[string][][]builder.Text{}, false
	for layer, names := range byLayer(nodes) {
		sets := w.Site.TextsOn(names)
		if brought != nil {
			more, err := brought(ctx, w.Site, names)
			if err != nil {
				return nil, err
			}
			sets = append(sets, more...)
		}
		written[layer] = release.WrittenOver(sets)
		some = some || builder.Asks(written[layer])
	}
	if !some || !w.Site.HasLayer() {
		return nil, nil
	}
	layers, err := w.Publisher.Layers(ctx, w.Policy, w.Layer)
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		why, err := builder.AskKept(ctx, l.Images, builder.Options{CacheDir: cache, Written: written[l.Digest]})
		if err != nil {
			return nil, err
		}
		if why != "" {
			unasked = append(unasked, fmt.Sprintf("the programs of layer %s were not asked about files of its nodes, since %s:"+
				" nodes ask visudo, sshd and nft before they write", l.Variant, why))
		}
	}
	return unasked, nil
}

// byLayer returns the names of nodes by the digests of their layers.
func byLayer(nodes []publish.Node) map[string][]string {
	names := map[string][]string{}
	for _, n := range nodes {
		names[n.Layer] = append(names[n.Layer], n.Name)
	}
	return names
}
