// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec/site"
)

// Digest returns the digest of what a publish of a site would give to nodes: of each its name,
// its layer and all of its overlay; and which keep what they have, as they are left out.
// Whoever agrees to it agrees to nothing else.
func Digest(s *site.Site, nodes []publish.Node) (string, error) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b publish.Node) int { return cmp.Compare(a.Name, b.Name) })
	h := sha256.New()
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
