// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"testing"

	"github.com/caisson-os/caisson/oci/sign"
)

// What is current is signed again where somebody says so whose key is not stolen, or where it is
// what was seen before. Layers are, since somebody else names them.
func TestResign(t *testing.T) {
	for name, c := range map[string]struct {
		stolen, seen bool
		dry          bool
		want         error
	}{
		"the key leaves":                       {},
		"in memory":                            {dry: true},
		"the key is stolen":                    {stolen: true, want: ErrNotStated},
		"stolen, in memory":                    {stolen: true, dry: true, want: ErrNotStated},
		"stolen, and it was current before it": {stolen: true, seen: true},
	} {
		s := newShop(t)
		layer := s.build(ann, "").Layers[0].Digest
		set, err := Find(t.Context(), s.Registry, Current)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		what := Resigning{Layers: []string{layer}, Trusted: s.keys, Stated: s.keys, By: fresh, Now: s.Now, Dry: c.dry}
		if c.stolen {
			what.Stated = nil
		}
		if c.seen {
			what.Seen = set.Index
		}
		for range 2 { // again: nothing is to be done
			if err := Resign(t.Context(), s.Registry, what); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		mine := []sign.Verifier{sign.VerifierOf(fresh)}
		if err := Verify(t.Context(), s.Registry, layer, mine); (err == nil) == c.dry {
			t.Errorf("%s: the layer: %v", name, err)
		}
		if _, err := set.Statement(t.Context(), mine); (err == nil) != (c.want == nil && !c.dry) {
			t.Errorf("%s: what is current: %v", name, err)
		}
	}
}
