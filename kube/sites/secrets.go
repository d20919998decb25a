// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// errSealedElsewhere is said where nodes have secrets, and what was sealed is not known.
var errSealedElsewhere = errors.New("nodes have secrets, and the namespace's directory has no secrets.lock and " +
	"recipients.lock of whoever publishes: 'caisson plan --from-cluster' says what would change")

// sealer has a site's overlays hold what is sealed already; nil where the site has no secrets.
// A signer keeps sealed values where it remembers what it published. Else it is what
// lies beside the keys, as somebody published it.
func (r *Reconciler) sealer(o objects, s *site.Site) (*seal.Sealer, error) {
	if len(s.Secrets()) == 0 {
		return nil, nil
	}
	beside := seal.Beside{Recipients: s.Dir(), Lock: s.Dir(), Key: s.Dir()}
	if len(r.Signers) > 0 {
		beside.Lock = filepath.Join(r.State, o.namespace+".secrets")
		beside.Key = beside.Lock
		if err := os.MkdirAll(beside.Lock, 0o700); err != nil {
			return nil, err
		}
	}
	x, err := seal.OpenAt(s, beside)
	if err != nil {
		return nil, fmt.Errorf("read what is sealed: %w", err)
	}
	return x, nil
}

// seal seals the secrets of a site where this instance signs, and returns those that were not
// looked at. What it sealed is written down before its digest is shown.
func (r *Reconciler) seal(ctx context.Context, o objects, s *site.Site) (notLooked []string, err error) {
	x, err := r.sealer(o, s)
	if x == nil || err != nil {
		return nil, err
	}
	if x.Must = len(r.Signers) > 0; x.Must && r.Secret != nil {
		x.Cluster = func(ctx context.Context, ref site.SecretRef) ([]byte, error) {
			return r.Secret(ctx, o.namespace, ref.Name, ref.Key)
		}
	}
	if err := x.Seal(ctx, s.Fleet().Names()); err != nil {
		return nil, err
	}
	if x.Must {
		err = x.Write()
	}
	return x.NotLooked(), err
}

// losesSecrets reports whether a plan takes secrets away: nobody does that who does not know
// what was sealed.
func losesSecrets(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Nodes, func(n plan.NodePlan) bool {
		return slices.ContainsFunc(n.Changes, func(c plan.Change) bool { return c.Item == "secret" && c.Action == spec.ActionRemove })
	})
}
