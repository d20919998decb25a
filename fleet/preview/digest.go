// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Digest returns the digest of all that is signed when a site is published as it is, and in the
// place of what: the [plan.Terms]; of each node its name, its layer and all of its overlay; which
// keep what they have, as they are left out; and the epoch and generation that were given out
// last. A person who agrees to it agrees to nothing else, and once: the publish takes the next
// generation, after which the same content has another digest. A renewal of signatures takes
// none. Flags of a publish are not in it: who types them answers for them.
func (w Preview) Digest(fleet *publish.Fleet, from spec.Floor, nodes []publish.Node) (string, error) {
	terms := w.terms(fleet)
	if place := w.Publisher.Registry.Ref(); place.IsLayout() { // the same name is another place elsewhere
		dir, err := filepath.Abs(place.Layout)
		if err != nil {
			return "", err
		}
		terms.Registry = dir
	}
	h := sha256.New()
	fmt.Fprintln(h, "act") // no digest of the old kind begins so
	if err := json.NewEncoder(h).Encode(terms); err != nil {
		return "", err
	}
	for _, r := range w.Site.Maintenance().Rollouts { // of two with the same waves one may divide fewer nodes otherwise
		fmt.Fprintf(h, "%s\n", r.Definition())
	}
	fmt.Fprintf(h, "from %d %d\n", from.Epoch, from.Generation)
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b publish.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s %s\n", n.Name, n.Layer, digest.Of(doc))
	}
	for _, l := range w.Site.LeftOut() {
		fmt.Fprintf(h, "%s is left out\n", l.Name)
	}
	return publish.Act + digest.From(h), nil
}

// terms returns what a publish signs beside overlays.
func (w Preview) terms(fleet *publish.Fleet) *plan.Terms {
	policy := fleet.Policy()
	t := &plan.Terms{Registry: w.Publisher.Registry.Ref().String(), Lifetime: int64(policy.Lifetime / time.Second), Threshold: max(1, policy.Threshold), Rollouts: []plan.RolloutTerms{}}
	for _, r := range w.Site.Maintenance().Rollouts {
		one := plan.RolloutTerms{Name: r.Name, Rule: r.Rule, Waves: []plan.WaveTerms{}}
		if _, divide, err := w.Site.Rollout(r.Name); err == nil { // else it is for no node
			for _, wave := range divide(func(string) bool { return true }) {
				one.Waves = append(one.Waves, plan.WaveTerms{Name: wave.Name, Nodes: wave.Nodes})
			}
		}
		t.Rollouts = append(t.Rollouts, one)
	}
	return t
}
