// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"slices"
	"strings"
	"testing"
)

// TestBootstrapOfALaterRelease: a key that narrows what is erased, or which cards are
// meant, must not widen it where it is not known.
func TestBootstrapOfALaterRelease(t *testing.T) {
	const head = `{"apiVersion":"","kind":"","fleet":"f","registry":"r","keys":["k"],"threshold":1`
	const row = `{"match":{"driver":"a"},"vlan":7}`
	for name, c := range map[string]struct {
		doc   string
		notes []string
		disk  bool
		rows  int
	}{
		"as it is":         {`,"newStateDisk":{"atLeast":1},"network":[` + row + `]}`, nil, true, 1},
		"at the top":       {`,"newStateDisk":{},"network":[` + row + `],"later":{"a":1}}`, []string{"left out: later (of a later release)"}, true, 1},
		"of the disk":      {`,"newStateDisk":{"atLeast":1,"onlyModel":"X"},"network":[` + row + `]}`, []string{"newStateDisk has onlyModel of a later release: no disk is erased"}, false, 1},
		"all of the disk":  {`,"newStateDisk":{"onlyModel":"X"}}`, []string{"newStateDisk has onlyModel of a later release: no disk is erased"}, false, 0},
		"of a match":       {`,"network":[` + row + `,{"match":{"driver":"a","model":"X","pci":"p"}},` + row + `]}`, []string{"network[1].match has model of a later release: it matches no card"}, false, 2},
		"of a row":         {`,"newStateDisk":{},"network":[{"match":{"driver":"a"},"mtu":9000,"later":1}]}`, []string{"left out: network[].later (of a later release)"}, true, 1},
		"of both and more": {`,"newStateDisk":{"x":1},"network":[{"match":{"y":1},"z":1}]}`, []string{"newStateDisk has x of a later release: no disk is erased", "network[0].match has y of a later release: it matches no card", "left out: network[].z (of a later release)"}, false, 0},
	} {
		b, notes, err := DecodeBootstrap([]byte(head + c.doc))
		if err != nil || !slices.Equal(notes, c.notes) {
			t.Errorf("%s: notes %q, want %q; %v", name, notes, c.notes, err)
			continue
		}
		if (b.NewStateDisk != nil) != c.disk || len(b.Network) != c.rows {
			t.Errorf("%s: a disk %v, want %v; %d rows, want %d", name, b.NewStateDisk, c.disk, len(b.Network), c.rows)
		}
	}
	if _, _, err := DecodeBootstrap([]byte(head + `,"needs":["a"],"network":"of another form"}`)); err == nil || !strings.Contains(err.Error(), `it needs a, which this release does not know`) {
		t.Errorf("a need that is not known: %v", err)
	}
	if _, _, err := DecodeBootstrap([]byte(head + `,"threshold":1}`)); err == nil {
		t.Error("a key that stands twice is taken")
	}
}
