// SPDX-License-Identifier: Apache-2.0

// Package rehearsal takes a node from what is published for it to what its site says, and back,
// in a sandbox, and says what that did.
//
//	from, to, err := rehearsal.Ends(ctx, preview, "node1") // what it runs, what would be published
//	box, err := sandbox.Open(ctx, site, "node1", sandbox.Options{Kept: from, …})
//	answer, err := rehearsal.Walk(ctx, box, rehearsal.Options{From: from, To: to, …})
//
// The node goes its own way: it is told to ask its registry, as it does by itself every few
// minutes, and to reboot where it waits for a reboot; where an operator has to confirm a change,
// it is confirmed. What did not come back is told by two pictures, which know nothing of the
// agent. Only cmd/caisson imports it.
package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Ends returns what is published for a node, and what publishing its site would give it; to is
// nil where the layer of that has yet to be built. then has the bootNetwork of the site as it was at
// a commit, nil where it cannot tell: the loader of what runs is older than an edit.
func Ends(ctx context.Context, w *preview.Preview, node string, then func(commit string) []spec.BootNetwork) (from, to *sandbox.Kept, err error) {
	if w.Publisher == nil {
		return nil, nil, cli.Usage("'caisson try' boots a node before anything is published",
			"nothing is published there yet, so that node %s runs nothing", node)
	}
	fleet, err := w.Publisher.Read(ctx, w.Policy)
	if err != nil {
		return nil, nil, err
	}
	row, there, err := fleet.Row(ctx, node)
	if err == nil && !there {
		err = cli.Usage("'caisson try' boots a node before anything is published", "nothing is published for node %s", node)
	}
	if err != nil {
		return nil, nil, err
	}
	content := spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation}
	if from, err = sandbox.ReadKept(ctx, fleet, w.Publisher.Registry, node, content); err != nil {
		return nil, nil, err
	}
	commit := "" // of what is no longer kept nothing is known
	if past, err := fleet.Past(ctx, publish.Generation{Epoch: fleet.Floor().Epoch, Number: row.Generation}); err == nil && past.Root.Change != nil {
		commit = past.Root.Change.Commit
	}
	from.Boot = then(commit)
	layers, err := w.Publisher.Layers(ctx, w.Policy, w.Layer)
	if err != nil && !errors.Is(err, oci.ErrNotFound) {
		return nil, nil, err
	}
	variants, err := w.Site.Variants()
	if err != nil {
		return nil, nil, err
	}
	v := variants[slices.IndexFunc(variants, func(v site.Variant) bool { return slices.Contains(v.Nodes, node) })]
	l, err := release.ForVariant(layers, site.RecipeID(v.Recipe), v.Name)
	if err != nil || digest.Hex(l.Recipe) != site.RecipeID(v.Recipe) {
		return from, nil, nil //nolint:nilerr // it has to be built
	}
	o, err := w.Site.Overlay(node, l.Digest)
	if err != nil {
		return nil, nil, err
	}
	o.Variant = l.Variant
	doc, err := spec.Encode(o)
	if err == nil && digest.Of(doc) == row.Overlay {
		err = cli.Usage("'caisson plan' says what differs", "publishing the site would change nothing on node %s", node)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("rehearse: %w", err)
	}
	return from, &sandbox.Kept{Overlay: o, Layer: l, From: w.Publisher.Registry}, nil
}
