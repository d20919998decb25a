// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// TestLoadersOnlyRise: a loader takes the place of the one of its architecture, and never of
// one with its number or a higher one.
func TestLoadersOnlyRise(t *testing.T) {
	v := &view{}
	of := func(arch string, number int64, image string) spec.Loader {
		return spec.Loader{Arch: arch, Number: number, Image: spec.Blob{Digest: image}}
	}
	for _, step := range []struct {
		l    spec.Loader
		good bool
	}{
		{of("amd64", 5, "a"), true}, {of("arm64", 3, "b"), true}, {of("amd64", 5, "a"), true}, {of("amd64", 5, "c"), false}, {of("amd64", 4, "d"), false}, {of("amd64", 6, "e"), true},
	} {
		if err := v.setLoader(step.l); (err == nil) != step.good {
			t.Errorf("%+v: %v", step.l, err)
		}
	}
	if want := []spec.Loader{of("amd64", 6, "e"), of("arm64", 3, "b")}; !slices.Equal(v.loaders, want) {
		t.Errorf("%+v, want %+v", v.loaders, want)
	}
}
