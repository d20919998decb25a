// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Digest returns the digest of what a publish of a site would give to nodes, and in the place
// of what: of each its name, its layer and all of its overlay; which keep what they have, as
// they are left out; and the epoch and generation that were given out last. Whoever agrees to
// it agrees to nothing else, and once: the publish takes the next generation, after which the
// same content has another digest. A renewal of signatures takes none.
func Digest(from spec.Floor, s *site.Site, nodes []publish.Node) (string, error) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b publish.Node) int { return cmp.Compare(a.Name, b.Name) })
	h := sha256.New()
	fmt.Fprintf(h, "from %d %d\n", from.Epoch, from.Generation)
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s %s\n", n.Name, n.Layer, digest.Of(doc))
	}
	for _, l := range s.LeftOut() {
		fmt.Fprintf(h, "%s is left out\n", l.Name)
	}
	return digest.From(h), nil
}
