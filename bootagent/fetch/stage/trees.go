// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"

	"github.com/caisson-os/caisson/internal/verity"
)

// Trees is how the kernel checks images while they are read.
type Trees struct {
	Sound map[string]bool // blobs that the last good run has left as they should be, see layers.Store
}

// Checked brings images into the store. Those that it returns, by digest, the kernel is to
// check while they are read; all others are as [Stager.Verified] leaves them. Of the former
// one that the last good run has left is not read here, which is what makes a boot short;
// any other is read once, for its tree, whose root says as much as its digest.
func (s Stager) Checked(ctx context.Context, list ...Part) (whenRead map[string]verity.Hash, err error) {
	whenRead = map[string]verity.Hash{}
	for _, part := range list {
		root, err := verity.Parse(part.Root)
		if s.Trees == nil || err != nil { // without a root
			if err := s.Verified(ctx, part); err != nil {
				return nil, err
			}
			continue
		}
		made := s.Trees.Sound[part.Digest] && s.Store.Has(part.Digest, part.Size) && s.Store.HasTree(part.Digest, part.Size)
		made = made || s.Store.Has(part.Digest, part.Size) && s.Store.MakeTree(part.Digest, root) == nil // why not, Verified says
		if !made {
			if err := s.Verified(ctx, part); err != nil {
				return nil, err
			}
			if err := s.Store.MakeTree(part.Digest, root); err != nil {
				s.Say("%s is not checked while it is read: %v", part.Name, err)
				continue
			}
		}
		whenRead[part.Digest] = root
	}
	return whenRead, nil
}
