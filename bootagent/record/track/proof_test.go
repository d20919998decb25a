// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"testing"

	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/refusal"
)

// A node that is matched by its card's address boots its last good overlay when the
// card is gone or replaced; another machine with its disk does not, and nothing that
// the registry offers is accepted by an address that is only remembered.
func TestACardThatIsGone(t *testing.T) {
	const card, uuid = "52:54:00:00:00:0a", "4c4c4544-0000-2010-8020-80c04f202020"
	f := newFleet(t)
	f.Identity = trust.Identity{Node: "superhost", MACs: []string{card}, UUIDs: []string{uuid}}
	f.overlay(said{generation: 1, macs: []string{card, "52:54:00:00:00:0b"}}, "10")
	f.sync()
	f.promote()
	for _, c := range []struct {
		name string
		id   trust.Identity
		good bool
	}{
		{"as it was", trust.Identity{MACs: []string{card}, UUIDs: []string{uuid}}, true},
		{"no card", trust.Identity{UUIDs: []string{uuid}}, true},
		{"another card", trust.Identity{MACs: []string{"52:54:00:00:00:ff"}, UUIDs: []string{uuid}}, true},
		{"another machine", trust.Identity{UUIDs: []string{"00000000-0000-4000-8000-00000000000b"}}, false},
		{"no UUID", trust.Identity{MACs: []string{"52:54:00:00:00:ff"}}, false},
		{"told another name", trust.Identity{Node: "other", UUIDs: []string{uuid}}, false},
	} {
		f.Identity = c.id
		if good, err := f.Good(false); (err == nil) != c.good || c.good && good[0].Generation.Generation != 1 {
			t.Errorf("%s: %v, %v", c.name, good, err)
		}
	}
	f.Identity = trust.Identity{Node: "superhost", UUIDs: []string{uuid}}
	f.overlay(said{generation: 2, macs: []string{card}}, "20")
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.WrongMachine {
		t.Errorf("what the registry offers is accepted by a remembered address: %v", err)
	}
}

// An address that the overlay is bound to and the machine never had is not proof.
func TestProofIsWhatTheMachineHad(t *testing.T) {
	f := newFleet(t)
	f.Identity = trust.Identity{Node: "superhost", MACs: []string{"52:54:00:00:00:0a"}, UUIDs: []string{"u"}}
	f.overlay(said{generation: 1, macs: []string{"52:54:00:00:00:0a", "52:54:00:00:00:0b"}}, "10")
	f.sync()
	if p := f.state().Proof; p.UUID != "u" || len(p.MACs) != 1 || p.MACs[0] != "52:54:00:00:00:0a" {
		t.Errorf("%+v", p)
	}
}
