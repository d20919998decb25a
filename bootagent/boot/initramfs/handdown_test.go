// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// TestHandDown: the agent of a release that follows no chain of keys is given those that
// count now, in a bootstrap that it can read.
func TestHandDown(t *testing.T) {
	fleet := fixture.NewFleet(t)
	root, fresh := fixture.NewKey(t), fixture.NewKey(t)
	one := fleet.FirstKeys(root)
	fleet.Keys(fleet.NextKeys(one, func(k *spec.Keys) { k.Roles.Operator = fixture.RoleOf(fresh) }), root)
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBoot(screen.Console{W: t.Output()}, machine{bootstrap: fleet.Bootstrap(), id: trust.Identity{Node: fixture.Node}}, nil)
	b.disk.folder, b.ways.source = folder, fleet.Registry.Source()
	b.machine.bootstrap.Chain = fleet.Anchor(one)
	b.machine.bootstrap.SetNeeds()
	if _, err := b.ways.follower().Sync(t.Context()); err == nil {
		t.Fatal("an overlay was found") // only the keys are there
	}
	raw, err := b.disk.handDown(&spec.Layer{})
	if err != nil {
		t.Fatal(err)
	}
	var got spec.Bootstrap
	if err := spec.Decode(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Chain != nil || got.Needs != nil || !slices.Equal(got.Keys, fixture.RoleOf(fresh).Keys) {
		t.Errorf("%+v", got)
	}
}

// TestTheServiceReadsWhatIsLeft: what is written for the service is the one encoding of its
// document, whatever was taken out.
func TestTheServiceReadsWhatIsLeft(t *testing.T) {
	for _, b := range []spec.Bootstrap{
		fixture.NewFleet(t).Bootstrap(),
		{Chain: []byte("{}")},
		{Network: []spec.BootNetwork{{}}, Nodes: []spec.BootNode{{}}, StateDisk: "x", Chain: []byte("{}"), KernelArgs: []string{"quiet"}},
	} {
		b.APIVersion, b.Kind, b.Fleet, b.Registry = spec.APIVersion, spec.KindBootstrap, "metal-a", "r"
		b.SetNeeds()
		raw, err := spec.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, notes, err := spec.DecodeBootstrap(forRoot(raw))
		if err != nil || notes != nil || got.Network != nil || got.Nodes != nil || got.Fleet != b.Fleet || len(got.Chain) != len(b.Chain) {
			t.Errorf("%+v, %q, %v of %s", got, notes, err, forRoot(raw))
		}
	}
}
