// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/spec"
)

// ErrInMemory says why nothing is checked while it is read on a node without a state disk:
// all was when it came, and nobody else can change memory.
var ErrInMemory = errors.New("they are in memory")

// Check brings a layer's images into the store. It returns the roots of those that the
// kernel is to check while they are read, and what the record says of them all. trees is
// asked for layers with roots alone; its error says why the kernel can check nothing.
func Check(ctx context.Context, staged stage.Stager, layer spec.Layer, trees func() (*stage.Trees, error)) (whenRead map[string]verity.Hash, noted state.Images, err error) {
	why := errors.New("the layer names no hash trees")
	if len(layer.Roots) > 0 {
		staged.Trees, why = trees()
	}
	parts := stage.Images(layer)
	if whenRead, err = staged.Checked(ctx, parts...); err != nil {
		return nil, noted, err
	}
	for _, part := range parts {
		if _, ok := whenRead[part.Digest]; ok {
			noted.WhenRead = append(noted.WhenRead, part.Digest)
		} else if why == nil {
			why = errors.New("the hash tree of " + part.Name + " could not be used")
		}
	}
	if why != nil {
		noted.Why = why.Error()
	}
	return whenRead, noted, nil
}
