// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Why a rotation would lose nodes.
const (
	lostUntilBoot  = "the agent of their layer does not follow the keys, and refuses until its next boot what is published after this"
	lostForNewBoot = "their boot files begin no chain of keys, and until they are written again the nodes refuse what is published after this"
)

// checkLost refuses a rotation that would lose nodes which the operator did not name: they
// would refuse what the signers of this rotation publish after it. A node that follows the
// keys is not lost, whichever version it knows: it walks on from there.
func (r *rotating) checkLost(ctx context.Context, grant []byte) error {
	rows, err := r.v.index.All(ctx)
	if err != nil {
		return err
	}
	for _, name := range r.Lose {
		if _, there := rows[name]; !there {
			return hint(didYouMean(name, rows)+"'caisson verify' lists the nodes", "node %q, which may be lost, is not published", name)
		}
	}
	if stays, err := r.staysSigned(grant); stays || err != nil {
		return err
	}
	older, err := r.WithoutFeature(ctx, spec.KeyChainFeature)
	if err != nil {
		return err
	}
	var unchained []string
	for _, name := range plain.Names(maps.Keys(rows)) {
		if known, said := r.Known[name]; said && known == nil && !slices.Contains(older, name) {
			unchained = append(unchained, name)
		}
	}
	var lost []string
	for _, of := range []struct {
		nodes []string
		why   string
	}{{older, lostUntilBoot}, {unchained, lostForNewBoot}} {
		if nodes := without(of.nodes, r.Lose); len(nodes) > 0 {
			lost = append(lost, fmt.Sprintf("%s: %s", plain.Some(nodes, 20), of.why))
		}
	}
	if lost == nil {
		return nil
	}
	return hint("give them a newer layer, or boot files that are written again, and boot them; --lose NODE names each "+
		"that may be lost; 'caisson keys plan' lists them",
		"nodes would be lost that need a key which leaves: %s", strings.Join(lost, "; "))
}

// staysSigned reports whether what these signers publish after a rotation is signed as those
// demand it who go on knowing one version of the keys alone: that before it, or an earlier one
// whose operators were still enough. Who knows none of these was lost before.
func (r *rotating) staysSigned(grant []byte) (bool, error) {
	versions, err := r.now.Versions()
	if err != nil {
		return false, err
	}
	var signers []sign.Verifier // after it
	for _, s := range r.p.Signers {
		if pub, counts := sign.Find(r.next.Operator, s.Public()); counts {
			signers = append(signers, pub)
		}
	}
	x := r.v.index.Root
	granted := func(of Policy, grant []byte) bool {
		return x.Epoch == 0 || sign.VerifyEpoch([][]byte{grant}, of.Epoch, x.Fleet, x.Epoch) == nil
	}
	for _, of := range versions {
		was := common(of.Operator, r.now.Operator) >= of.Threshold && granted(of, x.Grant)
		if was && (common(of.Operator, signers) < of.Threshold || !granted(of, grant)) {
			return false, nil
		}
	}
	return true, nil
}

// common counts the keys that are in both lists.
func common(a, b []sign.Verifier) int {
	ids := map[string]bool{}
	for _, k := range a {
		if slices.ContainsFunc(b, func(o sign.Verifier) bool { return o.ID() == k.ID() }) {
			ids[k.ID()] = true
		}
	}
	return len(ids)
}
