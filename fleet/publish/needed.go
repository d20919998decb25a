// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// Needed lists the layers that published overlays name, and why each stays: one of
// its nodes.
// An overlay that cannot be read stops everything: it might name any layer.
func Needed(ctx context.Context, reg *registry.Registry) (map[string]string, error) {
	tags, err := reg.Tags(ctx, oci.RepoNode)
	if errors.Is(err, oci.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	live := map[string]string{}
	for _, tag := range tags {
		if strings.HasPrefix(tag, "mac-") || strings.HasPrefix(tag, "uuid-") {
			continue // another name of a node that has its own tag
		}
		resp, err := reg.Source().Manifest(ctx, oci.RepoNode, tag, "")
		if err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		data, _, err := oci.ReadOverlay(ctx, reg.Source(), oci.RepoNode, resp)
		if err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		var o spec.Overlay
		if err := spec.Decode(data, &o); err != nil {
			return nil, fmt.Errorf("overlay of %s: %w", tag, err)
		}
		if live[o.Layer] == "" {
			live[o.Layer] = "node " + o.Node
		}
	}
	return live, nil
}
