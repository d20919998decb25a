// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
)

// SignRescue signs what lets somebody into a node, and decides as that node would.
func SignRescue(policy Policy, doc spec.Rescue, by []crypto.Signer) (c trust.Candidate, err error) {
	if c.Document, err = spec.Encode(doc); err != nil {
		return c, err
	}
	for _, s := range by {
		b, err := sign.SignRescue(s, oci.Digest(c.Document), sign.RescuePredicate{Fleet: doc.Fleet, Node: doc.Node, Code: doc.Code, IssuedAt: doc.At})
		if err != nil {
			return c, err
		}
		c.Bundles = append(c.Bundles, b)
	}
	_, err = rescue.Node{Fleet: policy.Fleet, Names: []string{doc.Node}, Code: doc.Code, Keys: policy.Roles().Rescue}.Accept(c)
	return c, err
}

// PutRescue publishes it for its node, in place of one that was there.
func (p *Publisher) PutRescue(ctx context.Context, node string, c trust.Candidate) error {
	manifest, blobs := oci.DocumentManifest(oci.TypeRescue, c.Document, c.Bundles...)
	for _, b := range blobs {
		if err := p.Registry.PutData(ctx, oci.RepoRescue, b); err != nil {
			return err
		}
	}
	_, err := p.Registry.PutManifest(ctx, oci.RepoRescue, oci.MediaTypeManifest, manifest, node)
	return err
}
