// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

func TestParts(t *testing.T) {
	good, bad := fixture.Overlay(nil), fixture.Overlay(fixture.Worse)
	all, err := Parts(good, bad)
	if want := []string{"layer", "agent", "kernelArgs", "modules", "files//etc/motd", "sysctl/kernel.x", "sysctl/vm.swappiness", "sysctl/vm.zone", "units/a.service"}; err != nil || !slices.Equal(all, want) {
		t.Fatalf("%q, %v", all, err)
	}
	mix := func(parts ...string) *spec.Overlay {
		t.Helper()
		o, err := Mix(good, bad, parts)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if d := cmp.Diff(good, mix()); d != "" {
		t.Errorf("no part: %s", d)
	}
	if d := cmp.Diff(bad, mix(all...)); d != "" {
		t.Errorf("all parts: %s", d)
	}
	if got := mix("sysctl/vm.swappiness", "sysctl/vm.zone"); !slices.Equal(got.Items.Sysctl, []spec.Sysctl{{Key: "vm/swappiness", Value: "90"}}) || got.Layer != "sha256:1" || got.Items.Modules == nil {
		t.Errorf("two settings: %+v", got)
	}
	if got := mix("layer", "modules"); got.Layer != "sha256:2" || got.Variant != "other" || got.Items.Modules != nil || got.Items.Files[0].Content != "a" {
		t.Errorf("the layer, and a kind that is gone: %+v", got)
	}
}

// What was taken of the bad overlay differs from it no more, and all else does.
func TestMixes(t *testing.T) {
	good, bad := fixture.Overlay(nil), fixture.Overlay(fixture.Worse)
	all, _ := Parts(good, bad)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var some, rest []string
		for _, p := range all {
			if r.IntN(2) == 0 {
				some = append(some, p)
			} else {
				rest = append(rest, p)
			}
		}
		o, err := Mix(good, bad, some)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := Parts(o, bad); !slices.Equal(got, rest) {
			t.Errorf("%q of it: %q differ", some, got)
		}
		if got, _ := Parts(good, o); !slices.Equal(got, some) {
			t.Errorf("%q of it: %q differ from the good one", some, got)
		}
	}
}
