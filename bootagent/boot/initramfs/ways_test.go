// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"crypto/ecdsa"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// networks are the site's, whose keys were rotated because one was stolen, and a thief's.
type networks struct{ honest, thief *fixture.Fleet }

// rotated makes them for a machine that knows the keys of before.
func (p *published) rotated() networks {
	n := networks{p.Fleet, fixture.NewFleet(p.t)}
	root, stolen := fixture.NewKey(p.t), p.Operator
	one := p.FirstKeys(root)
	p.machine.bootstrap.Keys, p.machine.bootstrap.Threshold, p.machine.bootstrap.Chain = fixture.RoleOf(stolen).Keys, 1, p.Anchor(one)
	p.Operator, n.thief.Operator = fixture.NewKey(p.t), stolen
	p.Keys(p.NextKeys(one, func(k *spec.Keys) { k.Roles.Operator, k.Reason = fixture.RoleOf(p.Operator), "a laptop was stolen" }), root)
	return n
}

// publishAt publishes a generation at a place, or what is old there.
func (p *published) publishAt(f *fixture.Fleet, generation, least, version uint64, key *ecdsa.PrivateKey) {
	at := fixture.Now()
	if f.Operator = key; generation > 0 {
		f.Overlay(spec.Overlay{Core: spec.Core{Layer: p.layer("image").Overlay.Layer}}, sign.Predicate{Generation: generation, IssuedAt: at})
	}
	if version > 0 {
		f.Current(spec.Fleet{Minimum: spec.Floor{Generation: least}, KeysVersion: version}, at)
	}
}

// TestOneWayHidesNothing: of two networks, or two media, that answer, a thief's has an overlay that
// the site's newest keys or least generation refuse, and serves neither of these. In each order the
// site's is taken, or none.
func TestOneWayHidesNothing(t *testing.T) {
	for name, row := range map[string]struct {
		make func(p *published, n networks)
		want uint64 // the generation that is entered, of the site's network; 0: none
	}{
		"a stolen key signs what is newest": {func(p *published, n networks) {
			p.publishAt(n.honest, 8, 1, 2, n.honest.Operator)
			p.publishAt(n.thief, 9, 1, 1, n.thief.Operator)
		}, 8},
		"and has no statement of the fleet": {func(p *published, n networks) {
			p.publishAt(n.honest, 8, 1, 2, n.honest.Operator)
			p.publishAt(n.thief, 9, 0, 0, n.thief.Operator)
		}, 8},
		"rubbish in the place of the keys": {func(p *published, n networks) {
			p.publishAt(n.honest, 8, 1, 2, n.honest.Operator)
			p.publishAt(n.thief, 9, 1, 1, n.thief.Operator)
			if _, err := n.thief.Registry.PutManifest(p.t.Context(), oci.RepoFleet, oci.MediaTypeManifest, []byte("{}"), "keys-2"); err != nil {
				p.t.Fatal(err)
			}
		}, 8},
		"an old overlay, and no least generation": {func(p *published, n networks) {
			p.publishAt(n.honest, 0, 9, 2, n.honest.Operator) // the node was taken out
			p.publishAt(n.thief, 8, 0, 0, n.honest.Operator)
		}, 0},
	} {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			t.Run(name, func(t *testing.T) {
				p := publish(t)
				n := p.rotated()
				row.make(p, n)
				p.machine.id.Node = fixture.Node
				places := []*fixture.Fleet{n.honest, n.thief}
				var all []answered
				var media []string
				for place, at := range order {
					way := &record.Lease{Interface: []string{"site", "thief"}[at]}
					all = append(all, p.ways.look(t.Context(), places[at].Registry.Source(), way, place))
					media = append(media, places[at].Registry.Ref().Layout)
				}
				p.ways.resolv, p.machine.bootstrap.Registry = filepath.Join(t.TempDir(), "resolv.conf"), "192.0.2.1:5000/metal-a"
				if err := p.ways.takeBest(t.Context(), slices.Clone(all)); err != nil {
					t.Fatal(err)
				}
				p.ways.source = map[string]*fixture.Fleet{"site": n.honest, "thief": n.thief}[p.ways.lease.Interface].Registry.Source()
				found, err := p.chooser.answer(t.Context())
				if taken := p.ways.lease.Interface; row.want != 0 && (err != nil || taken != "site" || found.Generation.Generation != row.want) {
					t.Errorf("by the network of the %s: %+v, %v", taken, found, err)
				} else if row.want == 0 && err == nil {
					t.Errorf("it would enter %+v", found)
				}
				if a := p.chooser.carriedBest(t.Context(), media); row.want != 0 && (a.err != nil || a.found.Generation.Generation != row.want) {
					t.Errorf("media: %+v, %v", a.found, a.err)
				} else if row.want == 0 && a.err == nil {
					t.Errorf("media: it would enter %+v", a.found)
				}
			})
		}
	}
}
